#!/bin/bash
MODEL_PATH=/srv/models/ocr-1b
nohup conda run --no-capture-output -n sglang python -m sglang.launch_server \
    --model-path "$MODEL_PATH" \
    --port 30000 \
    --mem-fraction-static 0.42 \
    --chat-template qwen2-vl \
    > /tmp/sglang_ocr.log 2>&1 &
