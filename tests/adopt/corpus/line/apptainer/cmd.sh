apptainer exec --nv vllm-openai_latest.sif \
  vllm serve acme/chat-14b \
    --host 0.0.0.0 \
    --port 8000 \
    --dtype auto \
    --trust-remote-code \
    --download-dir $HF_HOME/hub \
    &> /tmp/vllm_interactive.log &
