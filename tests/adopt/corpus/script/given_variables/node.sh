#!/bin/bash
export NCCL_IB_GID_INDEX=3
export NCCL_IB_TC=106
python3 -m sglang.launch_server \
    --model-path $MODEL \
    --tp 16 \
    --nnodes 2 \
    --node-rank $NODE_RANK \
    --dist-init-addr $MASTER_ADDR:5000 \
    --trust-remote-code
