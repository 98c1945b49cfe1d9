#!/usr/bin/env bash
set -euo pipefail
MODEL_PATH="${MODEL_PATH:-/srv/models/chat-32b-gptq}"
PORT="${PORT:-6006}"
VARIANT="${1:-baseline}"
COMMON_ARGS=(
  --model-path "$MODEL_PATH"
  --host 0.0.0.0 --port "$PORT"
  --quantization gptq_marlin
  --disable-cuda-graph
)
case "$VARIANT" in
  baseline)
    exec python3 -m sglang.launch_server "${COMMON_ARGS[@]}"
    ;;
  ngram)
    exec python3 -m sglang.launch_server "${COMMON_ARGS[@]}" \
      --speculative-algorithm NGRAM \
      --speculative-num-steps 5
    ;;
  *)
    echo "unknown $VARIANT" >&2; exit 2 ;;
esac
