#!/usr/bin/env bash
# One stay on a GPU machine for the backend as a whole: every op beside the CPU's, golden folders, bits that may not depend on how rows are
# cut, whole models teacher-forced beside the CPU, generation through the engine, memcheck. Each step has a limit of its own and leaves a log.
#
# usage: bench/gpu/parity.sh OUT_FOLDER [SECONDS, default 400] [FOLDER of programs: pack.sh, default build/gpu-parity] [checkpoint ...]
# Checkpoints beside the golden ones are run through gpu_parity and generation as well. Writes OUT_FOLDER/parity.log and summary.txt, prints
# the summary. Exit 1 if a step fails or could not run.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: parity.sh OUT_FOLDER [SECONDS] [PROGRAMS] [checkpoint ...]}
budget=${2:-400}
programs=$(realpath "${3:-build/gpu-parity}")
checkpoints=("${@:4}")
golden=tests/data/golden
# shellcheck disable=SC2034 # read by steps.sh
shows='all checks|folders passed|PASSED|ERROR SUMMARY|tok/s'
# shellcheck source=bench/gpu/steps.sh
source bench/gpu/steps.sh
export LD_LIBRARY_PATH="$programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
need_device
# Three layers of the released sizes, random weights: what runs on tuned kernels.
released=$(mktemp -d)

beside ops.plain 90 "$programs/gpu_ops" --plain
beside ops.tuned 90 "$programs/gpu_ops" --seed 2
for folder in tiny small-bf16 small-fp8 mtp; do
  beside "golden.$folder" 150 "$programs/golden_check" --device cuda "$golden/$folder"
done
beside exactness.model 180 env BATON_TEST_DEVICE=cuda "$programs/model.exactness_test"
beside synth.released 90 "$programs/baton" synth --config bench/configs/released-3-layers.json --format fp8 --seed 1 "$released/m"
wait_all
for folder in tiny small-bf16 small-fp8; do alone "parity.$folder" 30 "$programs/gpu_parity" "$golden/$folder"; done
alone parity.released 90 "$programs/gpu_parity" "$released/m" --prompt 160 --steps 16
alone parity.released.plain 60 "$programs/gpu_parity" --plain --form "bfloat16, fp8 caches" "$released/m" --prompt 160 --steps 16
alone parity.released.long 60 "$programs/gpu_parity" --form "bfloat16, fp8 caches" "$released/m" --prompt 2300 --steps 8
for checkpoint in "${checkpoints[@]}"; do
  alone "parity.$(basename "$checkpoint")" 60 "$programs/gpu_parity" "$checkpoint" --prompt 1500
done
# The engine on the device and on the CPU: the same prompts, sampled tokens side by side.
prompts=$(mktemp)
for i in 1 2 3 4 5 6 7 8; do seq -s, "$i" $((i * 3)) 250 >>"$prompts"; done
for checkpoint in "$golden/small-bf16" "${checkpoints[@]}"; do
  name=$(basename "$checkpoint")
  alone "generate.$name.cpu" 40 "$programs/baton" generate --model "$checkpoint" --dtype float32 --prompts "$prompts" --max-tokens 48 --ignore-eos
  alone "generate.$name.cuda" 40 "$programs/baton" generate --device cuda --model "$checkpoint" --dtype float32 --prompts "$prompts" --max-tokens 48 --ignore-eos
  grep -aE '^[0-9,]+$' "$logs/generate.$name.cpu" >"$logs/a"
  grep -aE '^[0-9,]+$' "$logs/generate.$name.cuda" >"$logs/b"
  if cmp -s "$logs/a" "$logs/b" && [[ -s $logs/a ]]; then
    say "passed      generate.$name: the same tokens as the CPU, $(wc -l <"$logs/a") prompts of 48"
  else
    say "DIFFERENT   generate.$name: $(diff "$logs/a" "$logs/b" | grep -c '^<') of $(wc -l <"$logs/a") answers differ from the CPU's"
  fi
  alone "generate.$name.bf16" 40 "$programs/baton" generate --device cuda --model "$checkpoint" --prompts "$prompts" --max-tokens 200 --ignore-eos --temperature 0.8 --seed 3
done
for checkpoint in "${checkpoints[@]}"; do
  alone "engine.$(basename "$checkpoint")" 60 "$programs/baton" bench engine --device cuda --model "$checkpoint" --batch 1,16,64 --prefix-share 0 --rounds 1
done
beside exactness.engine 90 env BATON_TEST_DEVICE=cuda "$programs/engine.exactness_test"
beside memcheck 90 compute-sanitizer --error-exitcode 9 --print-limit 20 --tool memcheck "$programs/gpu_ops"
wait_all
say "end"
for log in "$logs"/*.* "$logs"/memcheck; do
  [[ -e $log ]] && { echo "=== $(basename "$log")"; cat "$log"; }
done >"$out/parity.log"
cat "$out/parity.log"
cat "$out/summary.txt"
rm -rf "$logs" "$prompts" "$released"
exit $failed
