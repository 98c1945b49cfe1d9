HF_HOME=/srv/hf
MODEL="acme/chat-14b-awq"
screen -dmS vllm_tau bash -c "export HF_HOME=$HF_HOME HF_HUB_DISABLE_XET=1 HF_HUB_OFFLINE=1; \
    python -m vllm.entrypoints.openai.api_server --model $MODEL --port 8000 --quantization awq_marlin --dtype auto 2>&1 | tee /tmp/vllm_tau.log"
