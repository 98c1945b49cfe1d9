#!/bin/bash -e
cd /etc/systemd/system
printf """
[Unit]
Description=vLLM Server
[Service]
Type=simple
User=ubuntu
WorkingDirectory=/srv
ExecStart=/srv/vllm/bin/python3.10 -m vllm.entrypoints.openai.api_server --port=5000 --model acme/chat-13b --tensor-parallel-size=$(nvidia-smi --query-gpu=gpu_name --format=csv,noheader | wc -l) --seed 1234
Restart=always
""" >> vllm.service
sudo systemctl daemon-reload
