#!/bin/bash
MODEL="${VLLM_MODEL:-acme/Chat-3B-Instruct-AWQ}"
QUANT="${VLLM_QUANTIZATION:-auto}"
if [ "${QUANT}" = "auto" ]; then
  case "${MODEL,,}" in
    *awq*)  QUANT="awq_marlin" ;;
    *gptq*) QUANT="gptq_marlin" ;;
    *)      QUANT="" ;;
  esac
fi
ARGS=(--port 8001 --dtype float16 --served-model-name "${MODEL}")
[ -n "${QUANT}" ] && ARGS+=(--quantization "${QUANT}")
echo "args: ${ARGS[*]}"
exec vllm serve "${MODEL}" "${ARGS[@]}"
