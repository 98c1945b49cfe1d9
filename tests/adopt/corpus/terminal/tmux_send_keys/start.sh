tmux new -d -s sgl
tmux send-keys -t sgl "NCCL_ALGO=Ring python3 -m sglang.launch_server --model-path /srv/models/chat-8b --port 30000" C-m
