vllm serve acme/chat-8b \
  -tp 1 \
  --speculative-config '{
    "model": "acme/chat-8b-eagle3",
    "num_speculative_tokens": 3,
    "method": "eagle3"
  }'
