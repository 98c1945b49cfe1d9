tmux new-session -d -s vllm_0 \
    "source /srv/reason/.venv/bin/activate && \
     CUDA_VISIBLE_DEVICES=0 vllm serve acme/reason-2b \
         --port 8000 --max-model-len 16384 \
         --media-io-kwargs '{\"video\": {\"num_frames\": -1}}' \
         --reasoning-parser qwen3"

tmux new-session -d -s vllm_1 \
    "source /srv/reason/.venv/bin/activate && \
     CUDA_VISIBLE_DEVICES=1 vllm serve acme/reason-2b --port 8001"
