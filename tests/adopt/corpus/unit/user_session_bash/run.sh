HOST=$1
PORT=$2
export SGLANG_LOG_LEVEL=info
exec /usr/local/bin/python3 -m sglang.launch_server --model-path acme/chat-35b --host $HOST --port $PORT
