#!/bin/bash
NCCL="export NCCL_SOCKET_IFNAME=bond0; export NCCL_IB_HCA=mlx5_0,mlx5_1; export NCCL_ALGO=Ring"
REMOTE_CMD="cd /srv/sglang && source venv/bin/activate && $NCCL; nohup python -m sglang.launch_server --model-path /srv/models/v3 --tp 8 > server.log 2>&1 &"
ssh llm@gpu10 "$REMOTE_CMD"
