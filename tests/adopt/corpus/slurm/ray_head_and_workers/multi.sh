#!/bin/bash
#SBATCH --job-name=vllm-serve
#SBATCH --nodes=2
#SBATCH --gpus=8
#SBATCH --exclusive

source .venv/bin/activate
HEAD_NODE=$(scontrol show hostnames $SLURM_NODELIST | head -n1)
HEAD_NODE_IP=$(dig +short ${HEAD_NODE})
RAY_PORT=6378
export VLLM_ALLREDUCE_USE_SYMM_MEM=0
export VLLM_HOST_IP=$HEAD_NODE_IP

srun --nodelist $HEAD_NODE --nodes=1 --gpus=4 --cpus-per-task 72 --ntasks-per-node 1 \
    bash -c "VLLM_HOST_IP=$HEAD_NODE_IP ray start --block --head --node-ip-address=$HEAD_NODE_IP --port=$RAY_PORT" &
sleep 20
vllm serve /srv/models/oss-120b \
    --served-model-name oss-120b \
    --distributed-executor-backend ray \
    --port 8000 --max-num-seqs 512 --tensor_parallel_size=8
