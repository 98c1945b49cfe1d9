#!/bin/bash
MODEL_ID=acme/chat-10b
PORT=8000
mkdir -p /opt/llm
cat << EOF > /opt/llm/run_vllm.sh
#!/bin/bash
export VLLM_CACHE_ROOT=/opt/llm/cache
python3 -m vllm.entrypoints.openai.api_server \\
    --host 0.0.0.0 \\
    --port $PORT \\
    --model $MODEL_ID
EOF
chmod +x /opt/llm/run_vllm.sh
/opt/llm/run_vllm.sh
