#!/usr/bin/env python3
"""Writes the wgmma wrappers: the instruction names each accumulator register, so every width needs its own text.

usage: generate_wgmma.py e4m3 > wgmma_e4m3.cuh; generate_wgmma.py bf16 > wgmma_bf16.cuh
       generate_wgmma.py registers > wgmma_registers.cuh
"""
import sys

WIDTHS = {"e4m3": [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 104, 112, 120, 128, 192, 256], "bf16": [8, 16, 32, 64, 96, 128, 192, 256]}
K = {"e4m3": 32, "bf16": 16}


def wrapped(items, limit):
    lines, line = [], ""
    for item in items:
        if line and len(line) + len(item) + 2 > limit:
            lines.append(line.rstrip())
            line = ""
        line += item + ", "
    lines.append(line.rstrip(", "))
    return lines


def registers():
    """64 x 16 from registers times 16 x 64 from shared memory, for both 16-bit types."""
    print("""// d = a b + (accumulate ? d : 0) for one warpgroup: a is 64 x 16 in registers, b is 16 x 64 in shared memory, K-major or, with
// kColumnsFirst, with the 64 columns of one k in one row of 128 bytes (swizzled_operand serves both; the next 16 k are then 128 further).
// Written by generate_wgmma.py.
// Lane 4 g + c of warp w holds a[0] = A[16 w + g][2 c, + 1], a[1] = A[16 w + g + 8][..], a[2] = A[16 w + g][2 c + 8, + 9],
// a[3] = A[16 w + g + 8][..]; sums as in wgmma_bf16.cuh. The registers of a belong to the product until it has been waited for.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace baton::cuda {

template <class T>
struct WgmmaRegisters;
""")
    for name, t in (("__half", "f16"), ("__nv_bfloat16", "bf16")):
        places = wrapped([f"%{i}" for i in range(32)], 120)
        asm = "\n".join(f'        "{"{" if i == 0 else ""}{l}{"}" if i == len(places) - 1 else ""} "' for i, l in enumerate(places))
        outs = "\n          ".join(wrapped([f'"+f"(d[{i}])' for i in range(32)], 125))
        print(f"""template <>
struct WgmmaRegisters<{name}> {{
  template <bool kColumnsFirst>
  __device__ static __forceinline__ void run(float (&d)[32], const uint32_t* a, uint64_t b, int accumulate) {{
    asm volatile(
        "{{\\n .reg .pred p;\\n setp.ne.b32 p, %37, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.{t}.{t} "
{asm}
        ", {{%32, %33, %34, %35}}, %36, p, 1, 1, %38;\\n}}\\n"
        : {outs}
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kColumnsFirst ? 1 : 0));
  }}
}};
""")
    print("}  // namespace baton::cuda")


def main():
    t = sys.argv[1]
    if t == "registers":
        return registers()
    k = K[t]
    columns = t == "bf16"  # FP8 operands are K-major only
    kind = "both K-major in shared memory."
    if columns:
        kind = """a K-major in shared memory, b K-major or, with
// kColumnsFirst, with 64 columns of one k in one row of 128 bytes (columns_operand)."""
    print(f"""// d = a b + (accumulate ? d : 0) for one warpgroup: a is 64 x {k}, b is {k} x n, {kind}
// Written by generate_wgmma.py.
// Lane 4 g + c of warp w holds d[4 j + 0, 1] = D[16 w + g][8 j + 2 c, + 1] and d[4 j + 2, 3] = D[16 w + g + 8][8 j + 2 c, + 1].
#pragma once

#include <cstdint>

namespace baton::cuda {{

template <int kWidth>
struct Wgmma{t.capitalize()};
""")
    for n in WIDTHS[t]:
        regs = n // 2
        places = wrapped([f"%{i}" for i in range(regs)], 120)
        asm = "\n".join(f'        "{"{" if i == 0 else ""}{l}{"}" if i == len(places) - 1 else ""} "' for i, l in enumerate(places))
        outs = "\n          ".join(wrapped([f'"+f"(d[{i}])' for i in range(regs)], 125))
        template = "  template <bool kColumnsFirst = false>\n" if columns else ""
        trans = f", 0, %{regs + 3}" if columns else ""
        order = ', "n"(kColumnsFirst ? 1 : 0)' if columns else ""
        print(f"""template <>
struct Wgmma{t.capitalize()}<{n}> {{
{template}  __device__ static __forceinline__ void run(float (&d)[{regs}], uint64_t a, uint64_t b, int accumulate) {{
    asm volatile(
        "{{\\n .reg .pred p;\\n setp.ne.b32 p, %{regs + 2}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{t}.{t} "
{asm}
        ", %{regs}, %{regs + 1}, p, 1, 1{trans};\\n}}\\n"
        : {outs}
        : "l"(a), "l"(b), "r"(accumulate){order});
  }}
}};
""")
    print("}  // namespace baton::cuda")


main()
