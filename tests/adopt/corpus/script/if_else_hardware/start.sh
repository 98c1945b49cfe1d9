#!/bin/bash
if [ "$(nvidia-smi -L | wc -l)" -gt 2 ]; then
    TP=4
else
    TP=2
fi
vllm serve acme/chat-70b --tensor-parallel-size $TP --port 8000
