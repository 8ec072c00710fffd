#!/usr/bin/env bash
# One stay on an H200: what a change of the CUDA backend has to answer, in the order of its worth, within a budget of seconds. Nothing is built
# there: bench/gpu/pack.sh makes the packet on any machine with a toolkit.
#
# usage: bench/gpu/stay.sh OUT_FOLDER SECONDS PACKET [STAGE ...]
#   PACKET    what pack.sh wrote: its folder, or its .tar.xz
#   STAGE     any of (default: all, in this order)
#     ops       every op beside the CPU's: plain bodies, tuned kernels, tuned kernels that no device has run yet ("unproven")
#     parity    golden folders and three layers of the released sizes beside the CPU, with and without unproven kernels
#     cycle     bench cycle, eight layers of the released width, random weights: 1 to 1,024 requests x 1K, 128 x 16K, FP32 and BF16 state,
#               with and without a graph
#     prefill   bench prefill of the same model: 32K at the start of a prompt and behind 32K
#     rank      one of four ranks' share of the whole depth (72 of 288 experts), no communication: 32 requests x 8 rows x 64K, 8,192 rows
#               of a prompt behind 56K
#     memcheck  compute-sanitizer over every op
# Writes into OUT_FOLDER: summary.txt, checks.log, times.log, results.jsonl (what the benches measured, a line a step, for `baton plan --measured`). The summary is
# printed. Exit 1 if a step fails or could not run, or without a device; 2 on wrong usage.
set -uo pipefail
cd "$(dirname "$0")/../.."
usage() {
  sed -n '4,15p' "$0" | sed 's/^# \{0,1\}//' >&2
  exit 2
}
(($# >= 3)) || usage
out=$1
budget=$2
packet=$3
stages=("${@:4}")
((${#stages[@]} > 0)) || stages=(ops parity cycle prefill rank memcheck)
[[ $budget =~ ^[0-9]+$ ]] || usage
for s in "${stages[@]}"; do
  [[ $s =~ ^(ops|parity|cycle|prefill|rank|memcheck)$ ]] || {
    echo "stay.sh: no stage is called $s; see the head of the script" >&2
    exit 2
  }
done
if [[ ! -e $packet ]]; then
  echo "stay.sh: $packet does not exist; make it with bench/gpu/pack.sh build/cuda $packet" >&2
  exit 2
fi
# shellcheck disable=SC2034 # read by steps.sh
shows='all checks|folders passed|PASSED|ERROR SUMMARY|tok/s'
# shellcheck source=bench/gpu/steps.sh
source bench/gpu/steps.sh
need_device

if [[ -f $packet ]]; then
  programs=$(mktemp -d)
  trap 'rm -rf "$programs"' EXIT
  tar -C "$programs" -xJf "$packet" || exit 2
else
  programs=$(realpath "$packet")
fi
export LD_LIBRARY_PATH="$programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
for p in gpu_ops gpu_parity golden_check moe_harness baton; do
  [[ -x $programs/$p ]] || {
    say "FAILED      $packet holds no program $p"
    exit 1
  }
done
wants() { [[ " ${stages[*]} " == *" $1 "* ]]; }

# bench NAME LIMIT ARGUMENTS...: baton bench with a result in results.jsonl
bench() {
  alone "$1" "$2" "$programs/baton" bench "${@:3}" --device cuda --json "$logs/json.$1"
}
eight=(--config bench/configs/released-8-layers.json --dtype bfloat16 --activation-quant fp8)
unproven=--unproven-kernels

if wants ops; then
  beside check.ops.plain 100 "$programs/gpu_ops" --plain
  beside check.ops.tuned 100 "$programs/gpu_ops" --seed 2
  beside check.moe 100 "$programs/moe_harness" check # the expert kernels by themselves
  beside check.ops.unproven 100 "$programs/gpu_ops" --unproven --seed 3
  wait_all
fi

if wants parity; then
  released=$logs/released
  beside check.golden.tiny 100 "$programs/golden_check" --device cuda tests/data/golden/tiny
  beside check.synth 60 "$programs/baton" synth --config bench/configs/released-3-layers.json --format fp8 --seed 1 "$released"
  wait_all
  quantised=(--form "bfloat16, fp8 inputs" --prompt 160 --steps 16)
  alone check.parity.small 40 "$programs/gpu_parity" tests/data/golden/small-fp8
  alone check.parity.released 60 "$programs/gpu_parity" "$released" "${quantised[@]}"
  alone check.parity.released.unproven 60 "$programs/gpu_parity" --unproven "$released" "${quantised[@]}"
  alone check.parity.released.unproven.long 60 "$programs/gpu_parity" --unproven "$released" --form "bfloat16, fp8 caches" --prompt 2300 --steps 8
  rm -rf "$released"
fi

# The slower, proven kernels get one short run each; what is new gets the time.
if wants cycle; then
  bench time.cycle.16k 90 cycle "${eight[@]}" $unproven --requests 128 --context 16384
  bench time.cycle.16k.graph 60 cycle "${eight[@]}" $unproven --requests 128 --context 16384 --graph --op-rounds 0
  bench time.cycle.1k.f32 120 cycle "${eight[@]}" $unproven --requests 1,8,64,256,1024 --context 1024 --seconds 1
  bench time.cycle.1k.bf16 90 cycle "${eight[@]}" $unproven --requests 1024 --context 1024 --state-dtype bfloat16
  bench time.cycle.16k.proven 90 cycle "${eight[@]}" --requests 128 --context 16384 --seconds 0 --op-rounds 1
fi
if wants prefill; then
  bench time.prefill.32k 120 prefill "${eight[@]}" $unproven --chunk 32768 --context 0,32768 --kda chunked
  bench time.prefill.2k.proven 60 prefill "${eight[@]}" --chunk 2048 --context 0 --kda chunked --seconds 0 --op-rounds 1
fi
if wants rank; then
  rank=(--config bench/configs/released-rank-of-4.json --dtype bfloat16 --activation-quant fp8 $unproven --state-dtype bfloat16
    --kv-cache-dtype fp8_e4m3 --index-dtype fp8_e4m3)
  bench time.rank.cycle 180 cycle "${rank[@]}" --requests 32 --rows 8 --context 65536 --seconds 10 --graph
  bench time.rank.prefill 150 prefill "${rank[@]}" --chunk 8192 --context 57344 --kda chunked --seconds 10
fi
if wants memcheck; then
  sanitizer=(compute-sanitizer --error-exitcode 9 --print-limit 20 --tool memcheck)
  beside check.memcheck.tuned 150 "${sanitizer[@]}" "$programs/gpu_ops"
  beside check.memcheck.unproven 150 "${sanitizer[@]}" "$programs/gpu_ops" --unproven
  wait_all
fi

say "end"
gather check checks.log
gather time times.log
{
  for f in "$logs"/json.*; do
    [[ -e $f ]] && printf '{"step":"%s","result":%s}\n' "${f##*/json.}" "$(cat "$f")"
  done
} >"$out/results.jsonl"
cat "$out/times.log" "$out/summary.txt"
rm -rf "$logs"
exit "$failed"
