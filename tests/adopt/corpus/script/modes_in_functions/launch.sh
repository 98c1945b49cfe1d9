#!/usr/bin/env bash
MODEL=acme/chat-70b PORT=8000
TP=4; PP=1; DP=2

info() { echo "[info] $*"; }

launch_single() {
  vllm serve "${MODEL}" --port "${PORT}"
}

launch_mp() {
  info "Starting multiprocessing (TP=${TP}, PP=${PP}, DP=${DP})..."
  local args=(
    --host 0.0.0.0
    --port "${PORT}"
  )
  [ "${TP}" -gt 1 ] && args+=(--tensor-parallel-size "${TP}")
  [ "${PP}" -gt 1 ] && args+=(--pipeline-parallel-size "${PP}")
  [ "${DP}" -gt 1 ] && args+=(--data-parallel-size "${DP}")
  vllm serve "${MODEL}" "${args[@]}"
}

launch_mp
