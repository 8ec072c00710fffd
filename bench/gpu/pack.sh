#!/usr/bin/env bash
# Brings programs of a CMake build together with the shared libraries that they need, stripped, so that they start on a machine without
# them: the C library, its loader and the CUDA driver are taken from there. OUT_FOLDER.tar.xz is the same in one file; most of the programs is
# alike.
# What bench/gpu/stay.sh and parity.sh take.
# usage: bench/gpu/pack.sh BUILD_FOLDER OUT_FOLDER [program ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?usage: pack.sh BUILD_FOLDER OUT_FOLDER [program ...]}
out=${2:?usage: pack.sh BUILD_FOLDER OUT_FOLDER [program ...]}
programs=("${@:3}")
if ((${#programs[@]} == 0)); then programs=(gpu_ops gpu_parity golden_check moe_harness model.exactness_test engine.exactness_test baton); fi
mkdir -p "$out/lib"
for p in "${programs[@]}"; do
  strip -o "$out/$p" "$build/bin/$p"
  ldd "$out/$p" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
done | sort -u | while read -r library; do
  case $(basename "$library") in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | ld-linux*) ;;
    *) strip -o "$out/lib/$(basename "$library")" "$library" ;;
  esac
done
tar -C "$out" -c . | xz -6 --lzma2=dict=128MiB -T1 >"$out.tar.xz"
du -sh "$out" "$out.tar.xz"
