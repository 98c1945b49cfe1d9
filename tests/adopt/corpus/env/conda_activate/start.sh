#!/bin/bash
source /opt/conda/etc/profile.d/conda.sh
conda activate sglang
python -m sglang.launch_server --model-path /srv/models/chat-8b --port 7501 --attention-backend flashinfer
