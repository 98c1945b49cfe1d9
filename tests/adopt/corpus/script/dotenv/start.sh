#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
set -a; source .env; set +a

vllm serve "${MODEL_ID}" \
    --host 0.0.0.0 --port "${PORT:-8000}" \
    --api-key "${SERVE_KEY}" \
    --tensor-parallel-size ${TP_SIZE:-1}
