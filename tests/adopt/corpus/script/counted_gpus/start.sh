#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
TP=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\n' | wc -l)
python3 -m sglang.launch_server --model-path acme/chat-70b --tp $TP --port 30000
