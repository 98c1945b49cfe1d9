python3 -m sglang.launch_server \
  --trust-remote-code --model-path /lssd/models/v4-pro \
  --tp 8 --dp 8 --enable-dp-attention \
  --deepep-config '{"normal_dispatch":{"num_sms":96},"normal_combine":{"num_sms":96}}' \
  --host 0.0.0.0 --port 8088

sudo docker run -d --name router --network host \
  -v /lssd/models:/lssd/models:ro \
  lmsysorg/sgl-model-gateway:latest \
  --worker-urls http://127.0.0.1:8088 --policy cache_aware --port 8000
