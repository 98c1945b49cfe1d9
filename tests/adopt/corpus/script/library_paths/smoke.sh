#!/bin/bash
MODEL=/srv/models/flash
PORT_RC=30000
LOG=/tmp/smoke.log
CUDA_RT_DIR=/srv/cuda-runtime-lib
mkdir -p "$CUDA_RT_DIR"
export LIBRARY_PATH="$CUDA_RT_DIR:${LIBRARY_PATH:-}"
export LD_LIBRARY_PATH="$CUDA_RT_DIR:${LD_LIBRARY_PATH:-}"
export CUDA_HOME=/opt/maca/tools/cu-bridge
pkill -f 'sglang.launch_server' 2>/dev/null || true
nohup /opt/conda/bin/python -m sglang.launch_server \
    --model-path "$MODEL" \
    --host 0.0.0.0 --port "$PORT_RC" \
    --tp-size 8 \
    --json-model-override-args '{"routed_scaling_factor":3.0}' \
    > "$LOG" 2>&1 &
SERVER_PID=$!
