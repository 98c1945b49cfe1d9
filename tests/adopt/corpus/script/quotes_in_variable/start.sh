#!/bin/bash
ARGS="--served-model-name 'my model' --port 8000"
vllm serve acme/chat-8b $ARGS
