#!/bin/bash
declare -A PORTS=([chat]=8001 [code]=8002)
declare -A GPUS
GPUS[chat]=0
GPUS[code]=1,2
for name in "${!PORTS[@]}"; do
    CUDA_VISIBLE_DEVICES=${GPUS[$name]} vllm serve "acme/$name-8b" --served-model-name "$name" --port "${PORTS[$name]}" &
done
wait
