#!/bin/bash
SPEC=$(cat <<'JSON'
{"method": "eagle3", "model": "acme/chat-8b-eagle3",
 "num_speculative_tokens": 3}
JSON
)
read -r -d '' EXTRA <<'END'
--max-model-len 8192
--enforce-eager
END
vllm serve acme/chat-8b --speculative-config "$SPEC" $EXTRA
