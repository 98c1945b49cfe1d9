#!/bin/bash
N=$(nvidia-smi -L | wc -l)
for ((i = 0; i < N; i++)); do
    CUDA_VISIBLE_DEVICES=$i nohup vllm serve acme/chat-8b --port $((8000 + i)) &
done
