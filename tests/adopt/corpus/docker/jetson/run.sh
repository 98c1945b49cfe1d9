docker run --rm -it \
--network host \
--shm-size=8g \
--ulimit memlock=-1 \
--ulimit stack=67108864 \
--runtime=nvidia \
--name=vllm-serve \
-e HF_TOKEN=hf_0123456789abcdefghij \
-e HF_HOME=/root/.cache/huggingface \
acme/vllm:jetson-orin \
vllm serve "acme/reason-2b-w4a16" \
--max-model-len 8192 \
--trust-remote-code
