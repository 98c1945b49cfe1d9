#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
export NCCL_IB_HCA=mlx5_ib0:1,mlx5_ib1:1
srun --container-image=/srv/images/sglang.sqsh --container-mounts=/srv:/srv --mpi=none \
    python3 -m sglang.launch_server --model-path /srv/models/v3 --tp 8 --port 30000
