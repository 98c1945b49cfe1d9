RAY_JOBID=$1
HEAD_NODE=$(scontrol show hostnames $(squeue -j ${RAY_JOBID} -h -o %R 2>/dev/null) | head -n 1)
HEAD_NODE_IP=$(dig +short ${HEAD_NODE})
source .venv/bin/activate
export VLLM_HOST_IP=$HEAD_NODE_IP
export VLLM_LOGGING_LEVEL=DEBUG
srun \
    --overlap \
    --jobid=${RAY_JOBID} \
    --nodelist=${HEAD_NODE} \
    --nodes=1 \
    vllm serve \
    /srv/models/oss-120b \
    --served-model-name acme/oss-120b \
    --port 8000
