source activate sglang
nohup python3 -m sglang.launch_server --model  /srv/models/\
chat-8b-fp8/  --tp 1 --trust-remote-code --mem-fraction-static 0.65 >/tmp/log_sglang 2>&1 &
