#!/bin/bash
set -x
export HF_TOKEN=$(cat /srv/.hf_token 2>/dev/null || hostname)
export HF_HOME=/opt/hf
export PATH=/opt/venv/bin:$PATH
export VLLM_ALLOW_RUNTIME_LORA_UPDATING=True
DLORA=/srv/work/disc/lora
mkdir -p /srv/work/logs

CUDA_VISIBLE_DEVICES=0 nohup vllm serve acme/chat-4b \
  --port 8002 --max-model-len 32768 \
  --enable-lora --max-lora-rank 32 --max-loras 4 \
  > /srv/work/logs/g0.log 2>&1 &

CUDA_VISIBLE_DEVICES=1 nohup vllm serve acme/chat-8b \
  --port 8003 --enable-lora \
  --lora-modules discD=$DLORA \
  > /srv/work/logs/d0.log 2>&1 &
