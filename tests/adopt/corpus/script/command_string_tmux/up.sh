#!/bin/bash
PORT=8000
VLLM_CMD="vllm serve acme/chat-30b --port $PORT --dtype bfloat16"
VLLM_CMD+=" --max-model-len 8192"
screen -dmS vllm bash -c "$VLLM_CMD"
