#!/bin/bash
export NCCL_NVLS_ENABLE=0
until python3 -m sglang.launch_server --model-path acme/chat-8b --port 30000 >> /tmp/sgl.log 2>&1; do
    echo "died with $?" >&2
    sleep 5
done
