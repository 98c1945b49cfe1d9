#!/bin/bash
case "$1" in
    ring) export NCCL_ALGO=Ring ;;
    tree) export NCCL_ALGO=Tree ;;
esac
python3 -m sglang.launch_server --model-path /srv/models/k2 --tp 8 --port 8000
