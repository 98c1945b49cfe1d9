#!/bin/bash
exec > >(tee -a /tmp/all.log) 2>&1
ulimit -n 65535
trap 'echo bye' EXIT
stdbuf -oL vllm serve acme/chat-8b --port 8000
