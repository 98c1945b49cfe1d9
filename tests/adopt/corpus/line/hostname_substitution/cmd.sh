export VLLM_HOST_IP=$(hostname -I | awk '{print $1}')
export NCCL_SOCKET_IFNAME=ens19f0
export NCCL_IB_HCA=mlx5_1:1,mlx5_2:1
vllm serve /srv/models/deepseek-r1 --tensor-parallel-size 8 --host "$VLLM_HOST_IP" --port 9349 --block-size 64
