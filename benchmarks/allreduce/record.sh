#!/usr/bin/env bash
# Record the collectives of Kimi-K2.5 on this machine's GPUs: bash benchmarks/allreduce/record.sh OUT [PART ...]
# Parts: bad, hand, null, sets, grids; all of them without a word. Needs launch on the PATH and torch in `python3`.
# About fourteen minutes on two H200; the grids take under six.
set -eu
out=$1 && shift
ranks=$(python3 -c 'import torch; print(torch.cuda.device_count())')
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
what=(+hw=h200x2 model=kimi_k2_5_int4 "engine.tensor_parallel=$ranks" +spec=eagle3_2step target=process bench=allreduce
    "engine.python=$(command -v python3)" nccl.nvls_enable=0)
long='bench.prefill_tokens=[2048,8192]'

# What NCCL does with values that it cannot use; each ends with 1.
bad() {
    few=('bench.batches=[1]' 'bench.prefill_tokens=[64]' bench.deadline=15 sweep.out="$out/bad")
    for value in NCCL_ALGO=Rng NCCL_PROTO=LL12 NCCL_NTHREADS=100 NCCL_BUFFSIZE=abc; do
        launch bench "${what[@]}" "${few[@]}" -e "$value" --allow nccl-raw-value || true
    done
    launch bench "${what[@]}" "${few[@]}" nccl.min_nchannels=16 nccl.max_nchannels=2 --allow nccl-min-above-max-channels || true
}

# The tool against a loop written by hand, in turn.
hand() {
    for turn in 1 2 3; do
        pids=()
        for rank in $(seq 0 $((ranks - 1))); do
            NCCL_P2P_DISABLE=1 NCCL_CUMEM_ENABLE=0 NCCL_NVLS_ENABLE=0 CUDA_DEVICE_MAX_CONNECTIONS=8 \
                python3 "$here/hand.py" "$rank" "$ranks" "$out/hand-$turn" & pids+=($!)
        done
        wait "${pids[@]}"
        launch bench "${what[@]}" "$long" nccl.p2p_disable=1 sweep.out="$out/tool"
    done
}

# A variable that nothing reads: no difference, or the machine is too noisy to be measured on.
null() {
    launch -m env.NULL=a,b "${what[@]}" nccl.p2p_disable=1 'bench.batches=[8,64]' 'bench.prefill_tokens=[2048]' \
        sweep.max_repeats=40 sweep.effect=0.07 sweep.minutes=5.4 sweep.out="$out/null"
}

sets() {
    launch -m nccl=default,pcie_ll_ring nccl.algo=Ring,Tree "${what[@]}" "$long" nccl.p2p_disable=1 \
        sweep.minutes=1.4 sweep.out="$out/sets"
}

grids() {
    grid=(nccl.algo=Ring,Tree nccl.proto=LL,LL128,Simple nccl.max_nchannels=2,8,16 bench.seconds=0.1)
    launch -m "${grid[@]}" "${what[@]}" "$long" sweep.minutes=2.5 sweep.out="$out/p2p-on"
    launch -m "${grid[@]}" "${what[@]}" "$long" nccl.p2p_disable=1 sweep.minutes=3.2 sweep.out="$out/p2p-off"
}

for part in "${@:-bad hand null sets grids}"; do for one in $part; do "$one"; done; done
