#!/bin/bash
source /opt/vllm/venv/bin/activate
export VLLM_NO_USAGE_STATS=1
exec python3 -m vllm.entrypoints.openai.api_server \
    --model /srv/models/falcon-10b \
    --tensor-parallel-size $TENSOR_PARALLEL_SIZE \
    --enable-chunked-prefill
