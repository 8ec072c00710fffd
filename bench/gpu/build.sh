#!/usr/bin/env bash
# Builds the GPU programs without CMake: for machines that have a CUDA toolkit and little else.
# usage: bench/gpu/build.sh [output folder, default build/gpu]; statically linked against the CUDA runtime and libstdc++. Further
# arguments go to nvcc: -DBATON_RACECHECK for compute-sanitizer --tool racecheck.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-build/gpu}
mkdir -p "$out"
flags=(-std=c++20 -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -I"$root/src" -I"$root" -Xcompiler -Wall,-Wextra -cudart static -Xcompiler -static-libstdc++ "${@:2}")
cd "$root"
objects=()
for source in src/ops/cuda/moe/config.cc src/ops/cuda/moe/launch.cu src/ops/cuda/moe/inst/*.cu; do
  object=$out/$(basename "${source%.*}").o
  objects+=("$object")
  if [[ ! -e $object || -n $(find src/ops/cuda "$source" -newer "$object" \( -name '*.cuh' -o -name '*.h' -o -path "$source" \) -print -quit) ]]; then
    nvcc "${flags[@]}" -c "$source" -o "$object"
  fi
done
nvcc "${flags[@]}" tests/gpu/moe_harness.cu "${objects[@]}" -o "$out/moe_harness"
nvcc "${flags[@]}" bench/gpu/ceilings.cu -o "$out/ceilings"
nvcc "${flags[@]}" bench/gpu/promotion.cu -o "$out/promotion"
