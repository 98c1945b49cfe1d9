#!/usr/bin/env bash
set -euo pipefail
PORT=29999; CTX="131072"; TP="2"
while [[ $# -gt 0 ]]; do
  case "$1" in
    --port) PORT="$2"; shift 2 ;;
    *) echo "unknown $1"; exit 2 ;;
  esac
done
JSON_OVERRIDE='{"rope_scaling":{"rope_type":"yarn","factor":1.5,"original_max_position_embeddings":98304}}'
nohup python3 -m sglang.launch_server \
  --model-path /srv/models/search-4b \
  --tp "${TP}" \
  --host 0.0.0.0 \
  --port "${PORT}" \
  --context-length "${CTX}" \
  --json-model-override-args "${JSON_OVERRIDE}" \
  > "/tmp/sglang_search.log" 2>&1 < /dev/null &
