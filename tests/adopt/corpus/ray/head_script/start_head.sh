#!/bin/bash
NNODES=$@
export VLLM_HOST_IP=$(hostname -I | awk '{print $1}')
ray start --node-ip-address=$VLLM_HOST_IP --head --port=6379
sleep 40
ray status
vllm serve --chat-template "./chattemplate.jinja" --tensor-parallel-size 8 --pipeline-parallel-size $NNODES --distributed-executor-backend ray "/srv/models/base-7b" --host 0.0.0.0 --port 8000
