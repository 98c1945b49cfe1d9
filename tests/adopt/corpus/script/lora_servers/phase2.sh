#!/bin/bash
set -x
export HF_TOKEN=$(cat /srv/.hf_token 2>/dev/null || hostname)
export HF_HOME=/opt/hf
export PATH=/opt/venv/bin:$PATH
export VLLM_ALLOW_RUNTIME_LORA_UPDATING=True
DLORA=/srv/lab/disc/lora
mkdir -p /srv/lab/logs

CUDA_VISIBLE_DEVICES=0 nohup vllm serve acme/chat-4b \
  --port 8002 --max-model-len 32768 \
  --enable-lora --max-lora-rank 32 --max-loras 4 \
  > /srv/lab/logs/g0.log 2>&1 &

CUDA_VISIBLE_DEVICES=1 nohup vllm serve acme/chat-8b \
  --port 8003 --enable-lora \
  --lora-modules discD=$DLORA \
  > /srv/lab/logs/d0.log 2>&1 &
