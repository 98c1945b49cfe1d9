python3 -m sglang.launch_server \
    --model-path /srv/models/chat-8b \
    --host 0.0.0.0 \
    # --dist-init-addr 127.0.0.1:29500 --nnodes 2 --node-rank 0 \
    --port 37654 \
    --tp-size 1
