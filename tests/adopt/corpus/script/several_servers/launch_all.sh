#!/bin/bash
export HF_HOME=/srv/hf
export VLLM_LOGGING_LEVEL=WARNING

CUDA_VISIBLE_DEVICES=1 vllm serve acme/small-4b --port 8001 > /tmp/4b.log 2>&1 &
CUDA_VISIBLE_DEVICES=2 vllm serve acme/chat-8b --port 8002 --max-model-len 16384 > /tmp/8b.log 2>&1 &
unset VLLM_LOGGING_LEVEL
CUDA_VISIBLE_DEVICES=3 vllm serve acme/chat-14b --port 8003 > /tmp/14b.log 2>&1 &
wait
