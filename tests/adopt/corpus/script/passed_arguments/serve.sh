#!/bin/bash
# Usage: serve.sh MODEL [options of vllm]
set -euo pipefail
MODEL="$1"; shift
exec vllm serve "$MODEL" --disable-log-requests "$@"
