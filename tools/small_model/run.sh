#!/bin/sh
# Trains, exports and questions the small model on one GPU: run.sh SECONDS OUT. Needs requirements.txt; about 90 s more for the questions.
# The MTP layer and the drafter learn side by side: each alone leaves most of the device idle.
set -eu
seconds=$1
mkdir -p "$2/trunk" "$2/mtp" "$2/drafter"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")"
python3 check_device.py
python3 train.py --budget-s $((seconds * 7 / 10)) --stages short,long,index,sparse --out "$out/trunk"
python3 train.py --budget-s $((seconds * 3 / 10)) --stages mtp --weights "$out/trunk/sparse.pt" --workers 7 --out "$out/mtp" &
mtp=$!
python3 train.py --budget-s $((seconds * 3 / 10)) --stages drafter --weights "$out/trunk/sparse.pt" --workers 7 --out "$out/drafter"
wait $mtp
mv "$out/mtp/fp8" "$out/model"
mv "$out/drafter/drafter" "$out/model/drafter"
python3 evaluate.py "$out/model" --drafter "$out/model/drafter" --answers "$out/answers.jsonl" --out "$out/sparse.json"
python3 evaluate.py "$out/model" --no-drafts --dense --only recall --out "$out/dense.json"
python3 evaluate.py "$out/mtp/bf16" --no-drafts --out "$out/bf16.json"
