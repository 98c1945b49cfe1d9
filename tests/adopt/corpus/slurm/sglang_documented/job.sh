#!/bin/bash -l
#SBATCH -o SLURM_Logs/%x_%j_master.out
#SBATCH -J big-405b-tp16
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=18
#SBATCH --partition="gpu"
#SBATCH --gres=gpu:8
#SBATCH --time=12:00:00

source /srv/env/bin/activate
model=/srv/models/big-405b
tp_size=16
HEAD_NODE=$(scontrol show hostname "$SLURM_JOB_NODELIST" | head -n 1)
NCCL_INIT_ADDR="${HEAD_NODE}:8000"

OUTLINES_CACHE_DIR="/tmp/node_0_cache" srun --ntasks=1 --nodes=1 --output="/tmp/node0.out" \
    python3 -m sglang.launch_server \
    --model-path "$model" \
    --grammar-backend "xgrammar" \
    --tp "$tp_size" \
    --dist-init-addr "$NCCL_INIT_ADDR" \
    --nnodes 2 \
    --node-rank 0 &

OUTLINES_CACHE_DIR="/tmp/node_1_cache" srun --ntasks=1 --nodes=1 \
    python3 -m sglang.launch_server \
    --model-path "$model" \
    --grammar-backend "xgrammar" \
    --tp "$tp_size" \
    --dist-init-addr "$NCCL_INIT_ADDR" \
    --nnodes 2 \
    --node-rank 1 &
wait
