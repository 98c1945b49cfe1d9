#!/bin/bash
for gpu in 0 1 2; do
    CUDA_VISIBLE_DEVICES=$gpu vllm serve acme/chat-8b --port $((8000 + gpu)) > /tmp/vllm_$gpu.log 2>&1 &
done
wait
