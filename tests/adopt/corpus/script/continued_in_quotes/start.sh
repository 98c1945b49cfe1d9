#!/bin/bash
SERVEMODEL="/srv/huggingface/hub/\
models--acme--chat-8b/\
snapshots/0e9e39f2/"

export VLLM_CPU_KVCACHE_SPACE=40
uv run vllm serve $SERVEMODEL \
 --host "localhost" \
 --port 8010 \
 --enable-auto-tool-choice
# --max_model_len 16000
