#!/bin/bash
set -x
cmd=(
  python3 -u -m vllm.entrypoints.openai.api_server
  --model /srv/models/chat-8b
  --port 8000
  --hf-overrides '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}'
)
printf '%q ' "${cmd[@]}"
echo
export NCCL_P2P_DISABLE=1 \
       NCCL_SHM_DISABLE=0
"${cmd[@]}" >> /tmp/serve.log 2>&1 &
