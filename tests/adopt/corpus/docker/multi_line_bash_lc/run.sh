docker run --rm --network=host --gpus all -e NCCL_ALGO=Ring lmsysorg/sglang:dev bash -lc '
  export SGLANG_ENABLE_SPEC_V2=1
  exec python3 -m sglang.launch_server \
    --model-path /models/k2 --tp 8 --port 30000
'
