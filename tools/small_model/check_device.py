#!/usr/bin/env python3
"""Compares what only the device runs with the plain forms, values and gradients: the Triton kernels of KDA and of the mixing matrices."""
import sys

import torch

from kda import chunked, kda
from sinkhorn import sinkhorn, sinkhorn_reference


def apart(name, got, wanted, bound):
    error = ((got.float() - wanted.float()).norm() / wanted.float().norm()).item()
    bad = not error <= bound
    print(f"{name:24} {error:.1e}, allowed {bound:.0e}{'  FAILED' if bad else ''}")
    return bad


def check_kda():
    torch.manual_seed(3)
    n, h, d = 700, 2, 128
    starts = torch.tensor([0, 4, 68, 200, 456, n])
    q, k, v = (torch.nn.functional.normalize(torch.randn(n, h, d, device="cuda"), dim=-1).bfloat16().float() for _ in range(3))
    g = -5 * torch.sigmoid(torch.randn(n, h, d, device="cuda") * 2 - 3)
    beta = torch.rand(n, h, device="cuda")
    inputs = [x.clone().requires_grad_() for x in (q, k, v, g, beta)]
    wanted = chunked(*inputs, starts.tolist())
    weight = torch.randn_like(wanted)
    (wanted * weight).sum().backward()
    mine = [x.bfloat16().requires_grad_() for x in (q, k, v)] + [x.clone().requires_grad_() for x in (g, beta)]
    got = kda(*mine, (starts.cuda(), starts))
    (got.float() * weight).sum().backward()
    bad = apart("kda", got, wanted, 1e-2)
    for name, x, y in zip(("q", "k", "v", "g", "beta"), mine, inputs):
        bad |= apart("kda, gradient of " + name, x.grad, y.grad, 2e-2)
    return bad


def check_sinkhorn():
    torch.manual_seed(4)
    z = torch.randn(5000, 4, 4, device="cuda") * 3
    a, b = z.clone().requires_grad_(), z.double().requires_grad_()
    got, wanted = sinkhorn(a, 20, 1e-6), sinkhorn_reference(b, 20, 1e-6)
    weight = torch.randn_like(got)
    (got * weight).sum().backward()
    (wanted * weight).sum().backward()
    return apart("mixing matrices", got, wanted, 1e-5) | apart("their gradient", a.grad, b.grad, 1e-4)


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = False
    sys.exit(1 if check_kda() | check_sinkhorn() else 0)
