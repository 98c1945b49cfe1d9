#!/bin/bash
GPU_DEVICES=0,1,2,3
MODEL_PATH=/srv/models/chat-70b
TENSOR_PARALLEL_SIZE=4
ARGS=()
ARGS+=("--model" "$MODEL_PATH")
ARGS+=("--tensor-parallel-size" "$TENSOR_PARALLEL_SIZE")
exec env PYTHONHASHSEED=0 CUDA_VISIBLE_DEVICES=$GPU_DEVICES python -m vllm.entrypoints.openai.api_server \
    "${ARGS[@]}"
