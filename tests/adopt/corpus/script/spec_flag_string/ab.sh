#!/bin/bash
start_server() {
  local cfg=$1 log=$2 SPEC=""
  [ "$cfg" = "spec" ] && SPEC="--speculative-config {\"method\":\"mtp\",\"num_speculative_tokens\":1}"
  VLLM_LOGGING_LEVEL=INFO nohup python3 -m vllm.entrypoints.openai.api_server \
    --model=/srv/model --served-model-name=chat --host=0.0.0.0 --port=8000 \
    --kv-cache-dtype=fp8 --max-num-seqs=32 $SPEC \
    > "$log" 2>&1 &
  echo $! > /tmp/vllm.pid
}
start_server spec /tmp/ab.log
