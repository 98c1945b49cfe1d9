#!/bin/bash
source /opt/sglang-env/bin/activate
export CUDA_VISIBLE_DEVICES=1,2,3,4
python -m sglang.launch_server \
    --model-path /srv/models/air-awq-4bit \
    --host 0.0.0.0 \
    --port 8001 \
    --tensor-parallel-size 2 \
    --pipeline-parallel-size 2 \
    --served-model-name air-awq-4bit \
    --enable-torch-compile
