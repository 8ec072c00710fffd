#!/usr/bin/env python3
"""Times what a user of PyTorch would take for the expert GEMMs of one rank, on the shapes of bench/shapes.json.

usage: torch_moe.py [--json FILE]. Baselines only; nothing of the product depends on it.
Scales differ where PyTorch offers no block scales: the grouped product takes one scale a row. Weights rotate, so none stays in the cache.
"""
import argparse
import json
import statistics
import sys

import torch

EXPERTS, WIDTH, INNER = 72, 4096, 2048
results = []


def time_us(fn, sets, rounds=12):
    for i in range(sets):
        fn(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for i in range(sets):
                fn(i)
        step = graph.replay
        how = "graph"
    except Exception:  # counts on the host cannot be captured
        torch.cuda.synchronize()
        step = lambda: [fn(i) for i in range(sets)]
        how = "stream"
    step()
    times = []
    for _ in range(rounds):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        step()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1e3 / sets)
    return statistics.median(times), how


def report(name, shape, fn, sets, flops, byts):
    try:
        us, how = time_us(fn, sets)
    except Exception as e:
        print(f"{name:44s} {shape:34s} unavailable: {str(e).splitlines()[0][:150]}", flush=True)
        return
    print(f"{name:44s} {shape:34s} {us:9.1f} us  {flops / us * 1e-6:7.0f} TFLOP/s  {byts / us * 1e-6:6.2f} TB/s  ({how})", flush=True)
    results.append({"what": name, "shape": shape, "us": us, "tflops": flops / us * 1e-6, "tbs": byts / us * 1e-6, "timed": how})


def codes(*shape):
    x = torch.randint(0, 120, shape, dtype=torch.uint8, device="cuda")
    return (x | (torch.randint(0, 2, shape, dtype=torch.uint8, device="cuda") << 7)).view(torch.float8_e4m3fn)


def grouped(rows, sets):
    per = (rows // EXPERTS + 15) // 16 * 16  # groups of 16 rows: the grouped kernels ask for aligned offsets
    total = per * EXPERTS
    offsets = torch.arange(per, total + 1, per, dtype=torch.int32, device="cuda")
    for name, n, k in (("gate-up", 2 * INNER, WIDTH), ("down", WIDTH, INNER)):
        shape = f"{EXPERTS} x {per} rows, N {n}, K {k}"
        flops = 2.0 * total * n * k
        w8 = [codes(EXPERTS, n, k) for _ in range(sets)]
        x8 = codes(total, k)
        sa = torch.rand(total, device="cuda") + 0.5
        sb = torch.rand(EXPERTS, n, device="cuda") + 0.5
        report(f"torch._scaled_grouped_mm fp8 row scales {name}", shape,
               lambda i: torch._scaled_grouped_mm(x8, w8[i].transpose(-2, -1), sa, sb, offs=offsets, out_dtype=torch.bfloat16), sets,
               flops, EXPERTS * n * k + total * (k + 2 * n))
        x1 = codes(per, k)
        s1a = (torch.rand(k // 128, per, device="cuda") + 0.5).t()
        s1b = (torch.rand(n // 128, k // 128, device="cuda") + 0.5).t()

        def loop(i):
            for e in range(EXPERTS):
                torch._scaled_mm(x1, w8[i][e].t(), s1a, s1b, out_dtype=torch.bfloat16)

        report(f"loop of torch._scaled_mm block fp8 {name}", shape, loop, sets, flops, EXPERTS * n * k + total * (k + 2 * n))
        del w8
        w16 = [torch.randn(EXPERTS, n, k, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
        x16 = torch.randn(total, k, device="cuda", dtype=torch.bfloat16)
        report(f"torch._grouped_mm bf16 {name}", shape, lambda i: torch._grouped_mm(x16, w16[i].transpose(-2, -1), offs=offsets), sets,
               flops, 2 * EXPERTS * n * k + total * (2 * k + 2 * n))
        del w16


def around(rows, local_rows):
    """The passes around the GEMMs as plain PyTorch writes them: quantise, gather, SwiGLU and quantise, weighted sum."""
    x = torch.randn(rows, WIDTH, device="cuda", dtype=torch.bfloat16)
    index = torch.randint(0, rows, (local_rows,), device="cuda")
    gu = torch.randn(local_rows, 2 * INNER, device="cuda", dtype=torch.bfloat16)
    y = torch.randn(local_rows, WIDTH, device="cuda", dtype=torch.bfloat16)
    w = torch.rand(local_rows, 1, device="cuda")

    def quantise(v):
        b = v.float().view(v.shape[0], -1, 128)
        s = b.abs().amax(-1, keepdim=True).clamp_min(1e-10) / 448
        return (b / s).to(torch.float8_e4m3fn), s

    def chain(_):
        q, s = quantise(x)
        rows_q, rows_s = q.view(torch.uint8)[index], s[index]
        g, u = gu.float().chunk(2, -1)
        h, h_s = quantise(torch.nn.functional.silu(g.clamp_max(10)) * u.clamp(-10, 10))
        out = torch.zeros(rows, WIDTH, device="cuda")
        out = out.index_add_(0, index, y.float() * w).bfloat16()
        return rows_q, rows_s, h, h_s, out

    report("eager quantise, permute, SwiGLU, combine", f"{rows} rows, {local_rows} local", chain, 1, 0, 0)
    compiled = torch.compile(chain)
    try:
        compiled(0)
    except Exception:
        pass
    report("the same through torch.compile", f"{rows} rows, {local_rows} local", compiled, 1, 0, 0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--json")
    a = p.parse_args()
    torch.manual_seed(1)
    print(sys.version.split()[0], torch.__version__, torch.cuda.get_device_name())
    grouped(2048, 4)
    around(1024, 2048)
    grouped(65536, 2)
    m, n, k = 8192, 8192, 4096
    w = [codes(n, k) for _ in range(4)]
    x = codes(m, k)
    sa = (torch.rand(k // 128, m, device="cuda") + 0.5).t()
    sb = (torch.rand(n // 128, k // 128, device="cuda") + 0.5).t()
    report("torch._scaled_mm block fp8 (cuBLASLt)", f"{m} x {n} x {k}",
           lambda i: torch._scaled_mm(x, w[i].t(), sa, sb, out_dtype=torch.bfloat16), 4, 2.0 * m * n * k, n * k + m * k + 2 * m * n)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)


main()
