docker run --gpus all --ipc=host -p 30000:30000 \
  -e HF_TOKEN=hf_0123456789abcdefghij \
  public.ecr.aws/deep-learning-containers/sglang:server-cuda \
  --model-path acme/chat-70b \
  --tp 8 \
  --host 0.0.0.0 --port 30000
