#!/usr/bin/env bash
set -euo pipefail
OPT_MODEL="/srv/models/opt"
EVAL_MODEL="/srv/models/eval"
OPT_PORT="${OPT_PORT:-8000}"
EVAL_PORT="${EVAL_PORT:-8001}"
OPT_NAME="${OPT_NAME:-opt-llm}"
EVAL_NAME="${EVAL_NAME:-judge-llm}"
echo "[*] ${OPT_MODEL} on :${OPT_PORT} as ${OPT_NAME}"
CUDA_VISIBLE_DEVICES=0 nohup vllm serve "${OPT_MODEL}" \
  --host 0.0.0.0 --port "${OPT_PORT}" \
  --served-model-name "${OPT_NAME}" \
  > "/tmp/opt_${OPT_PORT}.log" 2>&1 &
CUDA_VISIBLE_DEVICES=1 nohup vllm serve "${EVAL_MODEL}" \
  --host 0.0.0.0 --port "${EVAL_PORT}" \
  --served-model-name "${EVAL_NAME}" \
  > "/tmp/eval_${EVAL_PORT}.log" 2>&1 &
