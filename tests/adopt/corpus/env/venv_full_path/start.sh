#!/bin/bash
. /opt/sglang-env/bin/activate
/opt/sglang-env/bin/python -m sglang.launch_server \
    --model-path /srv/models/air-awq-4bit \
    --quantization awq_marlin \
    --sleep-on-idle
