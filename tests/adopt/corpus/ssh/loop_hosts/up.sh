#!/bin/bash
HOSTS=(gpu01 gpu02)
MODEL=/srv/models/deepseek-v3
for i in "${!HOSTS[@]}"; do
    ssh -n "${HOSTS[$i]}" "NCCL_SOCKET_IFNAME=bond0 NCCL_IB_HCA=mlx5_0:1,mlx5_1:1 nohup python3 -m sglang.launch_server --model-path $MODEL --tp 16 --nnodes ${#HOSTS[@]} --node-rank $i --dist-init-addr ${HOSTS[0]}:5000 --host 0.0.0.0 --port 30000 > /tmp/sglang.log 2>&1 &"
done
