ssh -p 2222 llm@gpu20 "/srv/scripts/serve/serve_chat.sh 30001"
