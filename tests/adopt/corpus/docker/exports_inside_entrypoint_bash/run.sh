#!/bin/bash
IMG=acme/sglang:efa
IFACE=enp71s0
RANK=1
sudo docker rm -f sglang-tp32 >/dev/null 2>&1 || true
sudo docker run -d --name sglang-tp32 --gpus all --network host --shm-size 64g --ipc host \
  --privileged -v /dev/infiniband:/dev/infiniband \
  -v "/srv/models/longcat:/models/longcat" \
  --entrypoint bash "$IMG" -c "
    export FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1;
    export NCCL_SOCKET_IFNAME=${IFACE} GLOO_SOCKET_IFNAME=${IFACE};
    export NCCL_TIMEOUT=7200;
    exec python3 -m sglang.launch_server --model-path /models/longcat --tp 32 --nnodes 4 --node-rank ${RANK} --dist-init-addr 198.51.100.9:5000
"
