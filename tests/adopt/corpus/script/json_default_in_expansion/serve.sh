#!/bin/bash
ENABLE_THINKING=${ENABLE_THINKING:-false}
CHAT_TEMPLATE_KWARGS="${CHAT_TEMPLATE_KWARGS:-{\"enable_thinking\": ${ENABLE_THINKING}}}"
GPUS="${GPUS:-0,1}"
ARGS=(--tensor-parallel-size 2 --port 8100)
[[ -n "${CHAT_TEMPLATE_KWARGS}" ]] && ARGS+=(--default-chat-template-kwargs "${CHAT_TEMPLATE_KWARGS}")
CUDA_VISIBLE_DEVICES="${GPUS}" vllm serve acme/chat-12b "${ARGS[@]}"
