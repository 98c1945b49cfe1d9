VLLM_CPU_KVCACHE_SPACE=40 VLLM_CPU_OMP_THREADS_BIND="0-7|8-15" nice -n -5 taskset -c 0-15 vllm serve /srv/models/chat-8b --dtype bfloat16 -tp 2 --distributed-executor-backend mp
