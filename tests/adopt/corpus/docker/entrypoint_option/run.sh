sudo docker run -d --name sgl --network host --privileged --ulimit memlock=-1 --device /dev/infiniband \
  -e NCCL_IB_HCA=mlx5_0,mlx5_1 -e GLOO_SOCKET_IFNAME=eth0 -v /srv/models:/models:ro \
  --entrypoint python3 lmsysorg/sglang:v0.5.4 \
  -m sglang.launch_server --model-path /models/v3 --tp 8 --nnodes 2 --node-rank 0 --dist-init-addr 198.51.100.4:5000
