#!/bin/bash
extra_env="SGLANG_KV_ARENA=1"
chunk_bytes=1073741824
ONLY_L2=1
if [ "$ONLY_L2" = "1" ]; then
  extra_env="$extra_env SGLANG_ARENA_CHUNK_BYTES=$chunk_bytes SGLANG_BUDGETER=1"
fi
mem_frac="0.8"
if [ "$ONLY_L2" = "1" ]; then mem_frac="0.7"; fi
nohup env $extra_env \
  .venv/bin/python -m sglang.launch_server \
    --model-path acme/chat-1b --host 127.0.0.1 --port 30099 \
    --mem-fraction-static $mem_frac \
    >"/tmp/cell.log" 2>&1 &
