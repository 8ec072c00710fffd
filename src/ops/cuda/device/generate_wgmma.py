#!/usr/bin/env python3
"""Writes the wgmma wrappers: the instruction names each accumulator register, so every width needs its own text.

usage: generate_wgmma.py e4m3 > wgmma_e4m3.cuh; generate_wgmma.py bf16 > wgmma_bf16.cuh
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


def main():
    t = sys.argv[1]
    k = K[t]
    trans = "" if t == "e4m3" else ", 0, 0"
    print(f"""// d = a b + (accumulate ? d : 0) for one warpgroup: a is 64 x {k}, b is {k} x n, both K-major in shared memory.
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
        print(f"""template <>
struct Wgmma{t.capitalize()}<{n}> {{
  __device__ static __forceinline__ void run(float (&d)[{regs}], uint64_t a, uint64_t b, int accumulate) {{
    asm volatile(
        "{{\\n .reg .pred p;\\n setp.ne.b32 p, %{regs + 2}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{t}.{t} "
{asm}
        ", %{regs}, %{regs + 1}, p, 1, 1{trans};\\n}}\\n"
        : {outs}
        : "l"(a), "l"(b), "r"(accumulate));
  }}
}};
""")
    print("}  // namespace baton::cuda")


main()
