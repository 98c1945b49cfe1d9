#!/bin/bash
MODEL=acme/chat-8b
PORT=8000
uv run vllm serve "$MODEL" \
  --port "$PORT" \
  --gpu-memory-utilization 0.9 \
  --trust-remote-code
  > /tmp/vllm.log 2>&1 &
echo started
