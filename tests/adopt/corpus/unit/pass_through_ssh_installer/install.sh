#!/bin/bash
MODEL=acme/chat-8b
cat > /etc/systemd/system/vllm.service <<UNIT
[Unit]
Description=vLLM serving ${MODEL}

[Service]
Environment="CUDA_VISIBLE_DEVICES=0"
ExecStart=/opt/vllm/bin/vllm serve ${MODEL} --host 127.0.0.1 --port 8000
Restart=on-failure

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable --now vllm
