#!/usr/bin/env bash
# Builds the GPU programs without CMake: for machines that have a CUDA toolkit and little else. Compiles what changed, JOBS at a time
# (default: all cores), each file by itself, then links.
# usage: [JOBS=N] bench/gpu/build.sh [output folder, default build/gpu] [nvcc arguments]; statically linked against the CUDA runtime and
# libstdc++. -DBATON_RACECHECK builds for compute-sanitizer --tool racecheck.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/gpu}
mkdir -p "$out"
flags=(-DFMT_USE_CONSTEXPR=1 -diag-suppress=554 -std=c++20 -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Isrc -I. -Xcompiler -Wall,-Wextra "${@:2}")
link=(-gencode=arch=compute_90a,code=sm_90a -cudart static -Xcompiler -static-libstdc++)

# program: family whose kernels it links, source. The slowest to compile come first.
programs=(
  "kda_harness kda tests/gpu/kda_harness.cu"
  "mla_harness mla_sparse tests/gpu/mla_harness.cu"
  "moe_harness moe tests/gpu/moe_harness.cu"
  "indexer_harness indexer tests/gpu/indexer_harness.cu"
  "mhc_harness mhc tests/gpu/mhc_harness.cu"
  "ceilings - bench/gpu/ceilings.cu"
  "promotion - bench/gpu/promotion.cu"
)
object_of() { # src/ops/cuda/FAMILY/inst/NAME.cu -> OUT/FAMILY.NAME.o; tests/gpu/NAME.cu -> OUT/program.NAME.o
  case $1 in
    src/*) echo "$out/$(cut -d/ -f4 <<<"$1").$(basename "${1%.*}").o" ;;
    *) echo "$out/program.$(basename "${1%.*}").o" ;;
  esac
}
stale() { # SOURCE OBJECT: the object is older than its source or a header of its folders
  local folders=(src/ops src/tensor src/base)
  [[ $1 == tests/* ]] && folders+=(tests/gpu)
  [[ ! -e $2 || $1 -nt $2 || -n $(find "${folders[@]}" -newer "$2" \( -name '*.cuh' -o -name '*.h' \) -print -quit) ]]
}

sources=(src/ops/cuda/*/inst/*.cu)
for p in "${programs[@]}"; do sources+=("${p##* }"); done
sources+=(src/ops/cuda/*/launch.cu src/ops/cuda/*/config.cc)
for source in "${sources[@]}"; do
  object=$(object_of "$source")
  if stale "$source" "$object"; then printf '%s\0%s\0' "$source" "$object"; fi
done | xargs -0 -r -n 2 -P "${JOBS:-$(nproc)}" bash -c 'nvcc "${@:1:$#-2}" -c "${@: -2:1}" -o "${@: -1}" || { rm -f "${@: -1}"; echo "build.sh: ${@: -2:1} does not compile" >&2; exit 255; }' nvcc "${flags[@]}"

for p in "${programs[@]}"; do
  read -r program family source <<<"$p"
  objects=("$(object_of "$source")")
  if [[ $family != - ]]; then objects+=("$out/$family".*.o); fi
  nvcc "${link[@]}" "${objects[@]}" -o "$out/$program" &
done
for job in $(jobs -p); do wait "$job"; done
