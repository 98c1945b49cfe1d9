#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
export MODEL_NAME=acme/chat-70b TP=4 DP=2
export NCCL_SOCKET_IFNAME="^docker0,lo,bond0"
srun --ntasks=1 --nodelist=n07 bash -c '
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False
    uv run vllm serve $MODEL_NAME \
        --tensor-parallel-size $TP \
        --data-parallel-size $DP \
        2>&1 | tee -a /tmp/infer_$SLURM_PROCID.log
'
