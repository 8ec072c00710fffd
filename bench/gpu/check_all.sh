#!/usr/bin/env bash
# One stay on a GPU machine: every check, every sanitizer, then the times, within a budget of seconds. Checks and sanitizers run side by
# side (they need answers, not speed); times run alone. Each step has a limit of its own, so a hang costs little; every step leaves a log.
#
# usage: bench/gpu/check_all.sh OUT_FOLDER [SECONDS, default 600] [FOLDER of programs, default build/gpu] [the same with -DBATON_RACECHECK]
# Programs that are missing or do not start are built, and those in a folder with objects are brought up to date; a folder of programs alone
# (brought from another machine) is taken as it is. Writes OUT_FOLDER/{check,sanitize,time}.log, OUT_FOLDER/times.json and
# OUT_FOLDER/summary.txt; prints the summary. Exit 1 if a check or a sanitizer finds something or could not run.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: check_all.sh OUT_FOLDER [SECONDS] [PROGRAMS] [RACECHECK PROGRAMS]}
budget=${2:-600}
programs=${3:-build/gpu}
race=${4:-build/gpu-race}
families=(indexer kda mla mhc moe)
# shellcheck disable=SC2034 # read by steps.sh
shows='ERROR SUMMARY|all checks|hazard'
# shellcheck source=bench/gpu/steps.sh
source bench/gpu/steps.sh
starts() { # a program without arguments says how it is used and returns 2, or 77 that there is no device
  [[ -x $1 ]] || return 1
  "$1" >/dev/null 2>&1
  [[ $? == 2 || $? == 77 ]]
}
build() { # FOLDER FLAGS...
  for f in "${families[@]}"; do
    { starts "$1/${f}_harness" && ! compgen -G "$1/*.o" >/dev/null; } || { step "build.$(basename "$1")" 200 bench/gpu/build.sh "$@"; return; }
  done
  say "programs in $1 start"
}
need_device
build "$programs"
for f in "${families[@]}"; do
  beside "check.$f" 90 "$programs/${f}_harness" check
done
wait_all
gather check check.log

times() { # NAME LIMIT COMMAND...: with --json NAME.json
  step "time.$1" "$2" "${@:3:2}" --json "$logs/json.$1" "${@:5}"
}
times indexer 25 "$programs/indexer_harness" time --layers 11 --context 65536 256 8 64 256:1 256:8
times mla 45 "$programs/mla_harness" time --layers 11 --context 65536 256:fp8 256:bf16 8192:bf16:prefill 8192:fp8:prompt
times kda 40 "$programs/kda_harness" time --layers 34 --heads 64 chunk:8192:bf16 32:8:8:fused:bf16 32:8:8:fused:fp32 chunk:8192:fp32
times mhc 20 "$programs/mhc_harness" time --sites 90 256 256:16
gather time time.log
cat "$logs"/json.* >"$out/times.json" 2>/dev/null

build "$race" -DBATON_RACECHECK
sanitizer=(compute-sanitizer --error-exitcode 9 --print-limit 20)
for f in "${families[@]}"; do
  beside "sanitize.memcheck.$f" 75 "${sanitizer[@]}" --tool memcheck "$programs/${f}_harness" check-small
  beside "sanitize.racecheck.$f" 75 "${sanitizer[@]}" --tool racecheck "$race/${f}_harness" check-small
done
wait_all
gather sanitize sanitize.log

if [[ -n ${PROFILE:-} ]] && (($(left) > 15)); then # the stalls of one launch each, if time is left
  sections=(--section SpeedOfLight --section WarpStateStats --section SchedulerStats --section LaunchStats --section Occupancy --section MemoryWorkloadAnalysis)
  step profile.prefill 30 ncu --clock-control none "${sections[@]}" -k regex:attend_prefill -s 1 -c 1 "$programs/mla_harness" time --layers 2 2112:bf16:prefill
  step profile.indexer 30 ncu --clock-control none "${sections[@]}" -k regex:score_rows -s 3 -c 1 "$programs/indexer_harness" time --layers 2 256
  step profile.kda 40 ncu --clock-control none "${sections[@]}" -k regex:chunk_ -s 2 -c 2 "$programs/kda_harness" time --layers 2 --heads 64 chunk:8192:bf16
  step profile.decode 40 ncu --clock-control none "${sections[@]}" -k regex:decode_bf16 -s 4 -c 1 "$programs/kda_harness" time --layers 4 --heads 64 32:8:8:fused:bf16
  gather profile profile.log
fi
say "end"
cat "$out/time.log"
cat "$out/summary.txt"
rm -rf "$logs"
exit $failed
