#!/bin/bash
num_prefill=4
device_name="mlx5_bond_0,mlx5_bond_1"
MC_TE_METRIC=true SGL_ENABLE_JIT_DEEPGEMM=1 NCCL_IB_TC=160 NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_TIMEOUT=22 \
    nohup python3 -m sglang.launch_server \
        --model-path /srv/models/deepseek-v3 \
        --disaggregation-mode prefill \
        --disaggregation-ib-device $device_name \
        --nnodes ${num_prefill} \
        --tp-size $((${num_prefill}*8)) \
        --dp-size $((num_prefill * 8)) \
        --enable-dp-attention \
        --chunked-prefill-size $((${num_prefill}*131072)) >/tmp/prefill.log 2>&1 &
