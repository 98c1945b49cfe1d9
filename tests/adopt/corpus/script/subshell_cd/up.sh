#!/bin/bash
mkdir -p /srv/sglang
GPU=0
( cd /srv/sglang && HIP_VISIBLE_DEVICES="$GPU" \
    nohup python3 -m sglang.launch_server \
      --model-path /srv/models/chat-8b \
      --host 127.0.0.1 --port 30001 \
      --kv-events-config "{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\"}" \
      >/var/log/sglang.log 2>&1 & echo $! > /tmp/sglang.pid )
CUDA_VISIBLE_DEVICES=1 sglang serve --model-path /srv/models/small-1b --port 30002
