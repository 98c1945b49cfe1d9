#!/bin/bash
IP=198.51.100.7
ssh -o StrictHostKeyChecking=no root@"$IP" 'bash -s' << 'REMOTE'
set -e
source /opt/vllm-env/bin/activate
export HF_HUB_OFFLINE=1
nohup vllm serve /srv/models/k2 --tensor-parallel-size 8 --quantization int4 --port 8000 > /var/log/vllm.log 2>&1 &
REMOTE
