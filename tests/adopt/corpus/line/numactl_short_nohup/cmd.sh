nohup numactl -N 0 -m 0 vllm serve /srv/models/chat-72b \
    --served-model-name chat \
    --tensor-parallel-size 4 &> /tmp/vllm.log &
