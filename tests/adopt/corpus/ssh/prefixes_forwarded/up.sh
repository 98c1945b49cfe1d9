#!/bin/bash
WORKER=gpu12
export SGLANG_TUNE=7 NCCL_ALGO=Ring
FORWARD="SGLANG_TUNE=$SGLANG_TUNE NCCL_ALGO=$NCCL_ALGO"
ssh "$WORKER" "cd /srv && $FORWARD nohup python3 -m sglang.launch_server --model-path /srv/models/v3 --tp 2 --nnodes 2 --node-rank 1 > /tmp/rank1.log 2>&1 &"
python3 -m sglang.launch_server --model-path /srv/models/v3 --tp 2 --nnodes 2 --node-rank 0
