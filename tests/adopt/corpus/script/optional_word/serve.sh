#!/bin/bash
PARSER=qwen3
TEMPLATE=
EXTRA_ENV="VLLM_USE_V1=1 NCCL_DEBUG=WARN"
env $EXTRA_ENV vllm serve acme/chat-8b ${PARSER:+--reasoning-parser "$PARSER"} ${TEMPLATE:+--chat-template "$TEMPLATE"} --port 8000
