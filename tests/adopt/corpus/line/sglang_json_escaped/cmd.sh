python -m sglang.launch_server \
  --model-path /srv/models/linear-100b \
  --trust-remote-code \
  --tp-size 4 \
  --disable-radix-cache \
  --tool-call-parser qwen25 \
  --json-model-override-args "{\"linear_backend\": \"seg_la\"}"
