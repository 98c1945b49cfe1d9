export NCCL_P2P_DISABLE=1
ssh gpu03 "nohup vllm serve acme/chat-8b --port 8000 >/tmp/v.log 2>&1 &"
