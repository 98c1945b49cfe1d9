vllm serve acme/chat-8b \
  --tensor-parallel-size 2 \ 
  --max-model-len 8192 \
  --port 8001
