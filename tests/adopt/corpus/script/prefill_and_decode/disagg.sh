#!/bin/bash
export VLLM_HOST_IP=$(hostname -I | awk '{print $1}')
export VLLM_PORT=12345

wait_for_server() {
  local port=$1
  timeout 5 bash -c "
    until curl -s localhost:${port}/v1/completions > /dev/null; do
      sleep 1
    done" && return 0 || return 1
}

VLLM_RPC_PORT=5570 VLLM_DISAGG_PREFILL_ROLE=prefill CUDA_VISIBLE_DEVICES=0 python3 \
    -m vllm.entrypoints.openai.api_server \
    --model acme/chat-8b \
    --port 8100 \
    -tp 1 &
VLLM_RPC_PORT=5580 VLLM_DISAGG_PREFILL_ROLE=decode CUDA_VISIBLE_DEVICES=1 python3 \
    -m vllm.entrypoints.openai.api_server \
    --model acme/chat-8b \
    --port 8200 \
    -tp 1 &
wait_for_server 8100
wait_for_server 8200
