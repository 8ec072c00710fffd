#!/usr/bin/env bash
# Builds the GPU programs without CMake: for machines that have a CUDA toolkit and little else.
# usage: bench/gpu/build.sh [output folder, default build/gpu]; statically linked against the CUDA runtime and libstdc++. Further
# arguments go to nvcc: -DBATON_RACECHECK for compute-sanitizer --tool racecheck.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-build/gpu}
mkdir -p "$out"
flags=(-DFMT_USE_CONSTEXPR=1 -diag-suppress=554 -std=c++20 -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -I"$root/src" -I"$root" -Xcompiler -Wall,-Wextra -cudart static -Xcompiler -static-libstdc++ "${@:2}")
cd "$root"
for source in src/ops/cuda/*/config.cc src/ops/cuda/*/launch.cu src/ops/cuda/*/inst/*.cu; do
  family=$(cut -d/ -f4 <<<"$source")
  object=$out/$family.$(basename "${source%.*}").o
  if [[ ! -e $object || -n $(find src/ops/cuda "$source" -newer "$object" \( -name '*.cuh' -o -name '*.h' -o -path "$source" \) -print -quit) ]]; then
    nvcc "${flags[@]}" -c "$source" -o "$object"
  fi
done
nvcc "${flags[@]}" tests/gpu/moe_harness.cu "$out"/moe.*.o -o "$out/moe_harness"
nvcc "${flags[@]}" tests/gpu/mla_harness.cu "$out"/mla_sparse.*.o -o "$out/mla_harness"
nvcc "${flags[@]}" tests/gpu/mhc_harness.cu "$out"/mhc.*.o -o "$out/mhc_harness"
nvcc "${flags[@]}" tests/gpu/indexer_harness.cu "$out"/indexer.*.o -o "$out/indexer_harness"
nvcc "${flags[@]}" tests/gpu/kda_harness.cu "$out"/kda.*.o -o "$out/kda_harness"
nvcc "${flags[@]}" bench/gpu/ceilings.cu -o "$out/ceilings"
nvcc "${flags[@]}" bench/gpu/promotion.cu -o "$out/promotion"
