MODEL=/srv/models/merged-7b
NAME=merged
tmux kill-session -t vllm 2>/dev/null || true
tmux new-session -d -s vllm "\
    VLLM_USE_V1=0 python3 -m vllm.entrypoints.openai.api_server \
        --model '$MODEL' \
        --served-model-name '$NAME' \
        --port 8000 \
        --enforce-eager \
    2>&1 | tee /tmp/vllm.log"
