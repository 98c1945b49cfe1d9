#!/bin/bash
rank=0
for host in $(cat /srv/cluster/hosts.txt 2>/dev/null || hostname); do
    ssh $host "python3 -m sglang.launch_server --model-path /srv/models/v3 --tp 16 --nnodes 2 --node-rank $rank" &
    rank=$((rank + 1))
done
wait
