#!/bin/bash
for i in {0..1}; do
    CUDA_VISIBLE_DEVICES=$i vllm serve acme/chat-8b --served-model-name chat{,-8b} --port 800$i > /tmp/v$i.log 2>&1 &
done
for i in $(seq 2 3); do
    CUDA_VISIBLE_DEVICES=$i sglang serve --model-path acme/chat-8b --port 3000$i &
done
wait
