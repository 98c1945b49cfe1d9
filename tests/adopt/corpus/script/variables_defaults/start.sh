#!/bin/bash
set -euo pipefail

MODEL="${MODEL:-/srv/models/chat-30b}"
PORT=${PORT:-8000}
TP_SIZE="${TP_SIZE:-2}"
UTIL=${GPU_UTIL:=0.90}

vllm serve "$MODEL" \
    --host 0.0.0.0 --port ${PORT} \
    --tensor-parallel-size "${TP_SIZE}" \
    --gpu-memory-utilization $UTIL
