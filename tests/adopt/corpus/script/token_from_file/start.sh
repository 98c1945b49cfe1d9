#!/bin/bash
HF_TOKEN=$(hostname -I; cat /srv/secrets/hf 2>/dev/null)
export HF_TOKEN HF_HUB_ENABLE_HF_TRANSFER=1
python3 -m vllm.entrypoints.openai.api_server --model acme/gated-8b --port 8000
