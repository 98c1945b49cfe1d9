#!/usr/bin/env bash
set -ex
PORT=30030
pkill -9 -f sglang 2>/dev/null || true
sleep 5
nohup python3 -m sglang.launch_server \
    --model-path /srv/models/sft-4b \
    --port $PORT \
    --dp 8 \
    --mem-fraction-static 0.8 \
    > /tmp/sglang-sanity.log 2>&1 &

for i in $(seq 1 3); do
    if curl -s http://127.0.0.1:$PORT/health > /dev/null 2>&1; then break; fi
    sleep 1
done
python3 - <<PY
import requests
print(requests.get("http://127.0.0.1:$PORT/v1/models").json())
PY
python3 -m sglang.bench_serving --backend sglang --port $PORT --num-prompts 300
