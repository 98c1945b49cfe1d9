export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
source /srv/eva/activate.sh sglang 2>/dev/null
MODEL_PATH="/srv/models/chat-235b"
python -m sglang.launch_server --model-path $MODEL_PATH --tp 8 --port 1690 --tool-call-parser qwen
