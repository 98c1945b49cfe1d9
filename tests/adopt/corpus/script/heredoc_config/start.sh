cat > config.yaml << EOF
model-path: acme/chat-8b
host: 0.0.0.0
port: 30000
tensor-parallel-size: 2
enable-metrics: true
log-requests: true
EOF

python -m sglang.launch_server --config config.yaml
