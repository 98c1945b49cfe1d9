#!/bin/bash
PORT=30000
ssh gpu02 <<EOF
GPUS=0,1
CUDA_VISIBLE_DEVICES=\$GPUS python3 -m sglang.launch_server --model-path /srv/models/chat-8b --port $PORT > /tmp/sgl.log 2>&1 &
EOF
