export VLLM_ALLREDUCE_USE_SYMM_MEM=0
vllm serve /srv/models/oss-120b \
    --served-model-name oss-120b \
    --port 8000 \
    --config ./oss.yaml \
    --tensor_parallel_size=8
