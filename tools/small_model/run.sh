#!/bin/sh
# Trains, exports and questions the small model on one GPU: run.sh SECONDS OUT [FILE]. Needs requirements.txt; about a minute more for the
# last questions. With FILE the device is left alone until that file is there; rows are made meanwhile.
# The MTP layer and the drafter learn side by side, since each alone leaves most of the device idle; questions are asked beside them.
set -eu
seconds=$1
begin=${3:-/dev/null}
mkdir -p "$2/trunk" "$2/mtp" "$2/drafter"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")"
finished=$out/trunk/sparse.pt
python3 train.py --budget-s $((seconds * 3 / 4)) --stages short,long,index,sparse --after "$begin" --out "$out/trunk" &
trunk=$!
while [ ! -e "$begin" ]; do sleep 0.2; done
nice python3 train.py --budget-s 1 --steps 2 --workers 1 --out "$out/warm" >"$out/warm.log" 2>&1 &  # compiles what later stages need
warm=$!
python3 train.py --budget-s $((seconds / 4)) --stages mtp --weights "$finished" --after "$finished" --out "$out/mtp" &
mtp=$!
python3 train.py --budget-s $((seconds / 4)) --stages drafter --weights "$finished" --after "$finished" --out "$out/drafter" &
drafter=$!
trap 'kill $trunk $warm $mtp $drafter 2>/dev/null || true' EXIT
wait $trunk
(
  python3 evaluate.py "$out/trunk/fp8" --no-drafts --dense --only recall --out "$out/dense.json"
  python3 evaluate.py "$out/trunk/bf16" --no-drafts --out "$out/bf16.json"
) &
questions=$!
wait $mtp
wait $drafter
mv "$out/mtp/fp8" "$out/model"
mv "$out/drafter/drafter" "$out/model/drafter"
python3 evaluate.py "$out/model" --drafter "$out/model/drafter" --answers "$out/answers.jsonl" --out "$out/sparse.json"
wait $questions
python3 check_device.py
