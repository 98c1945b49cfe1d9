#!/bin/bash
MODEL=/srv/models/chat-4b

start_server() {
    local port=$1 extra="$2"
    python3 -m sglang.launch_server --model-path "$MODEL" --port "$port" --host 0.0.0.0 \
        --tool-call-parser qwen25 --context-length 32768 $extra
}

start_server 30000 "--enable-metrics --disable-radix-cache"
