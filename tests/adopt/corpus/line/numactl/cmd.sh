numactl --cpunodebind=0 --membind=0 vllm serve /srv/models/chat-72b --served-model-name chat --tensor-parallel-size 4
