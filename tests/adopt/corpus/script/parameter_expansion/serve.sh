#!/bin/bash
MODEL=/srv/models/acme/chat-8b-instruct.v2
GPUS=0,1,2,3
NAME=${MODEL##*/}
COMMAS=${GPUS//[^,]/}
CUDA_VISIBLE_DEVICES=$GPUS vllm serve $MODEL --served-model-name ${NAME%.v2} --tensor-parallel-size $((${#COMMAS} + 1)) --port 80${GPUS:0:1}0
