VLLM_SERVER_DEV_MODE=1 setsid nohup vllm serve /srv/models/chat-14b --gpu-memory-utilization 0.85 --max-model-len 4096 \
  --served-model-name chat14b --port 8354 \
  --compilation-config '{"cudagraph_mode":"FULL"}' \
  > /tmp/serve_iso.log 2>&1 < /dev/null &
