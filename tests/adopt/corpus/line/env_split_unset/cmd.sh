unset http_proxy
unset https_proxy

python3 -m sglang.launch_server \
    --model-path "/srv/models/chat-7b/" \
    --host 0.0.0.0 \
    --port 30000 \
    --attention-backend torch_native \
    --tp 1
