#!/bin/bash
MODEL_PATH=${1:-/srv/models/gemma-27b/}
MAX_NUM_SEQS=${2:-1}
TP_SIZE=${4:-16}
export VLLM_RPC_TIMEOUT=1800000
export NEURON_COMPILED_ARTIFACTS="$MODEL_PATH"
python -m vllm.entrypoints.openai.api_server \
    --model="/srv/models/gemma-27b/" \
    --max-num-seqs=$MAX_NUM_SEQS \
    --tensor-parallel-size=$TP_SIZE \
    --port=8080
