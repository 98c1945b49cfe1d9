#!/bin/bash
eval "$(conda shell.bash hook)"
conda activate /scratch/envs/vllm
vllm serve acme/chat-8b --port 8000
