#!/bin/bash
cd "$(dirname "$0")"
export HF_HOME=/srv/hf
bash serve_one.sh acme/chat-4b 1 8001
bash serve_one.sh acme/chat-8b 2 8002
