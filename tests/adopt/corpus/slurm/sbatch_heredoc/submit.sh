#!/bin/bash
MODEL=acme/chat-70b
sbatch <<EOF
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus=4
export NCCL_ALGO=Ring
srun vllm serve $MODEL -tp 4 --port 8000
EOF
