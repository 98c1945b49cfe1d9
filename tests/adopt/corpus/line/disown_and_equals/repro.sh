export HCCL_EXEC_TIMEOUT=1440
export VLLM_USE_V1=1
export PROMETHEUS_MULTIPROC_DIR=/tmp/

nohup python -m vllm.entrypoints.openai.api_server \
    --model=/srv/chat-32b/ \
    --trust-remote-code \
    --load-format=prefetch_auto \
    --port 8006 \
    -tp=8 \
    --max-num-seqs 192 &> /tmp/run.log &
disown
