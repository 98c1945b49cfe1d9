# Start servers in the background; start several to go faster
# CUDA_VISIBLE_DEVICES=0 nohup vllm serve acme/chat-8b --served_model_name chat-1 --port 8001 > /dev/null 2>&1 &
# CUDA_VISIBLE_DEVICES=1 nohup vllm serve acme/chat-8b --served_model_name chat-2 --port 8002 > /dev/null 2>&1 &
CUDA_VISIBLE_DEVICES=2 nohup vllm serve acme/chat-8b --served_model_name chat-3 --port 8003 > /dev/null 2>&1 &
