#!/bin/bash
MODEL=$1; GPU=$2; PORT=$3
CUDA_VISIBLE_DEVICES=$GPU vllm serve "$MODEL" --port "$PORT" --gpu-memory-utilization 0.9
