#!/bin/bash
MODEL="${MODEL:-acme/chat-27b-awq}"
DISABLE_CUSTOM_ALL_REDUCE="${DISABLE_CUSTOM_ALL_REDUCE:-1}"
EXTRA_ARGS="${EXTRA_ARGS:-}"
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0,1}"

args=(
  --served-model-name "chat"
  --tensor-parallel-size "${TP_SIZE:-2}"
  --kv-cache-dtype "fp8"
  --enable-prefix-caching
)
if [[ "${DISABLE_CUSTOM_ALL_REDUCE}" == "1" ]]; then
  args+=(--disable-custom-all-reduce)
fi
if [[ -n "${EXTRA_ARGS}" ]]; then
  args+=(${EXTRA_ARGS})
fi
exec vllm serve "${MODEL}" "${args[@]}"
