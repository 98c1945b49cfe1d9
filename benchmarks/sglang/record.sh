#!/usr/bin/env bash
# Which NCCL set is best for this server, and at which load? bash benchmarks/sglang/record.sh OUT [OVERRIDE ...]
# Needs launch on the PATH, `python3` with SGLang 0.5.17, and the model's folder (conf/model/llama_6144.yaml).
set -eu
out=$1 && shift
mkdir -p "$out"
cd "$(dirname "$0")"
launch -m +experiment=nccl_two_gpus "engine.python=$(command -v python3)" -e HF_HUB_OFFLINE=1 -e TRANSFORMERS_OFFLINE=1 \
    bench.client=command "bench.command=python3 $PWD/client.py" --allow nccl-bare-tree-raw sweep.out="$out" "$@"
