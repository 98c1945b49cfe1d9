#!/bin/bash
CMD="vllm serve acme/chat-8b --port 8000"
CMD="$CMD --limit-mm-per-prompt '{\"image\": 4, \"audio\": 1}'"
echo "Command: $CMD"
eval $CMD
