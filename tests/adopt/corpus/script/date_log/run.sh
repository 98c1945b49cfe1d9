#!/bin/bash
TS=$(date +%Y%m%d_%H%M%S)
mkdir -p /tmp/logs
export VLLM_USE_FLASH_MLA=1
vllm serve /srv/models/r1 --trust-remote-code --tensor-parallel-size 8 --port 9349 \
  --kv-cache-dtype fp8_e4m3 --no-enable-prefix-caching 2>&1 | tee "/tmp/logs/serve_${TS}.log"
