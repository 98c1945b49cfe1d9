#!/bin/bash
IMAGE=vllm/vllm-openai:v0.11.0
OPTS=(
  --rm --name chat
  --gpus all
  --network=host
  --env-file ./chat.env
  -v /srv/models/chat:/models/chat:ro
)
docker run "${OPTS[@]}" "$IMAGE" --model /models/chat --port 8000 --api-key sk-file-0123456789abcdef
