#!/bin/bash
pip install -U vllm "sglang[all]"
docker pull vllm/vllm-openai:latest
which vllm; vllm --version
python -c "import sglang; print(sglang.__version__)"
vllm bench serve --backend vllm --model acme/chat-8b --port 8000
python3 -m sglang.bench_serving --backend sglang --port 30000
python3 -m sglang.check_env
python3 -m vllm.entrypoints.openai.run_batch -i in.jsonl -o out.jsonl --model acme/chat-8b
pkill -f "vllm serve" || true
pgrep -af sglang.launch_server
docker logs -f vllm
tail -f /var/log/vllm.log | grep "vllm serve"
curl -s localhost:8000/v1/models -d '{"cmd": "vllm serve acme/chat-8b"}'
python3 -m sglang_router.launch_router --worker-urls http://a:30000 http://b:30000
ray start --head
hf download acme/chat-8b --local-dir /srv/models/chat-8b
