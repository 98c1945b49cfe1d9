#!/bin/bash
MODEL=${1:-acme/chat-8b}
PORT=${2:-8000}
API_KEY=${3:-""}
: "${HF_HOME:=/srv/hf}"
[ -z "$API_KEY" ] || KEY_ARG="--api-key $API_KEY"
export HF_HOME
python3 -m vllm.entrypoints.openai.api_server --model $MODEL --port $PORT $KEY_ARG --disable-log-stats
