# head, with the API server
vllm serve acme/moe-30b --data-parallel-size 4 --data-parallel-size-local 2 \
    --data-parallel-address 198.51.100.4 --data-parallel-rpc-port 13345 --enable-expert-parallel
# the other host
vllm serve acme/moe-30b --headless --data-parallel-size 4 --data-parallel-size-local 2 \
    --data-parallel-start-rank 2 --data-parallel-address 198.51.100.4 --data-parallel-rpc-port 13345 --enable-expert-parallel
