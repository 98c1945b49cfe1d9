#!/bin/bash
source .venv/bin/activate
export VLLM_WORKER_MULTIPROC_METHOD=spawn
vllm serve acme/gemma-12b \
  --max-model-len 32768 \
  --mm-processor-kwargs '{"max_soft_tokens": 280}' \
  --limit-mm-per-prompt '{"image": 4, "audio": 1}'
