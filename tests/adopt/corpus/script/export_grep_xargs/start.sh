#!/bin/bash
if [ -f .env ]; then
    export $(grep -v '^#' .env | xargs)
fi
vllm serve acme/chat-8b --port 8000
