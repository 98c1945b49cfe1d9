LLM_MODEL=acme/code-small-w4a16
docker run \
--gpus '"device=0,1"' --rm --name vllm_server \
-v /srv/hf:/root/.cache/huggingface \
-e VLLM_LOGGING_LEVEL=DEBUG -p 8000:8000  \
--ipc=host vllm/vllm-openai:v0.9.1 \
--model $LLM_MODEL \
--tokenizer_mode mistral --pipeline-parallel-size 2 \
--max_model_len 48080
