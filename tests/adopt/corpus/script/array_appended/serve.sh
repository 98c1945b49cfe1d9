#!/usr/bin/env bash
HOST=0.0.0.0
PORT=8000
ENABLE_TOOLS=1
QUANTIZATION=""
ROPE='{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}'

VLLM_ARGS=(
    --host "$HOST"
    --port "$PORT"
    --dtype bfloat16            # as trained
    --max-model-len 131072
    --served-model-name "chat 8b"
)
if [[ "$ENABLE_TOOLS" == "1" ]]; then
    VLLM_ARGS+=(--enable-auto-tool-choice --tool-call-parser hermes)
fi
if [[ -n "$QUANTIZATION" ]]; then
    VLLM_ARGS+=(--quantization "$QUANTIZATION")
fi
VLLM_ARGS+=(--rope-scaling "$ROPE")

exec vllm serve /srv/models/chat-8b "${VLLM_ARGS[@]}"
