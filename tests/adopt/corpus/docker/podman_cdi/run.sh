podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable --env HF_HUB_OFFLINE=1 \
  --entrypoint= -p 127.0.0.1:8000:8000 docker.io/vllm/vllm-openai:v0.10.2 \
  vllm serve acme/chat-8b --dtype bfloat16 --port 8000
