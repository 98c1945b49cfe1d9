nohup env CUDA_VISIBLE_DEVICES=6,7 python -m sglang.launch_server \
  --model-path /srv/models/chat-14b-ft \
  --tp 2 \
  --host 0.0.0.0 \
  --port 8081 \
  --disable-cuda-graph \
  --disable-radix-cache \
  > /tmp/sglang_8081.log 2>&1 &
