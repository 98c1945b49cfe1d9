#!/bin/bash
GRAPH_CFG='{"decode":{"max_bs":136,"bs":[1,2,4,8]},"prefill":{"backend":"disabled"}}'
PORT=30212
LOG=/var/log/serve_sweep.log
MOE_ARGS="--moe-runner-backend flashinfer_mxfp4 --ep 4"

export CUDA_VISIBLE_DEVICES=4,5,6,7
export MASTER_PORT=29628
export NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_P2P_LEVEL=NVL NCCL_PROTO=Simple NCCL_ALGO=Ring

cd /srv/src/sglang
nohup python3 -m sglang.launch_server \
  --model-path /srv/models/flash-v4 \
  --served-model-name flash-v4 \
  --tp 4 --trust-remote-code --mem-fraction-static 0.88 \
  --kv-cache-dtype fp8_e4m3 $MOE_ARGS \
  --host 0.0.0.0 --port $PORT \
  --cuda-graph-config "$GRAPH_CFG" \
  > "$LOG" 2>&1 &
echo "launched pid $! port $PORT"
