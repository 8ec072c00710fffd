"""Doubly stochastic mixing matrices of mHC: a softmax over rows, then alternating normalisations, with their gradient.

One small matrix per token and many iterations: on the device one kernel does all of it in registers, instead of a launch per iteration.
"""
import torch

from compiled import wide

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a device
    triton = None


def sinkhorn_reference(z, iterations, eps):
    """z [tokens, s, s] -> mixing matrices. The last normalisation is one of columns."""
    m = torch.softmax(wide(z), -1) + eps
    m = m / (m.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        m = m / (m.sum(-1, keepdim=True) + eps)
        m = m / (m.sum(-2, keepdim=True) + eps)
    return m


if triton is not None:
    @triton.jit
    def _forward(z_ptr, trace_ptr, out_ptr, tokens, iterations, eps, S: tl.constexpr, TOKENS: tl.constexpr, TRACE: tl.constexpr):
        """TRACE: keeps every intermediate matrix in trace [2 * iterations, tokens, S, S]."""
        t = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
        i = tl.arange(0, S)
        at = t[:, None, None] * S * S + i[None, :, None] * S + i[None, None, :]
        ok = (t < tokens)[:, None, None] & (i >= 0)[None, :, None] & (i >= 0)[None, None, :]
        z = tl.load(z_ptr + at, mask=ok, other=0.0)
        e = tl.exp(z - tl.max(z, 2, keep_dims=True))
        m = e / tl.sum(e, 2, keep_dims=True) + eps
        step = tokens.to(tl.int64) * S * S
        for n in range(iterations):
            if n > 0:
                if TRACE:
                    tl.store(trace_ptr + (2 * n - 1) * step + at, m, mask=ok)
                m = m / (tl.sum(m, 2, keep_dims=True) + eps)
            if TRACE:
                tl.store(trace_ptr + 2 * n * step + at, m, mask=ok)
            m = m / (tl.sum(m, 1, keep_dims=True) + eps)
        tl.store(out_ptr + at, m, mask=ok)

    @triton.jit
    def _backward(trace_ptr, grad_ptr, out_ptr, tokens, iterations, eps, S: tl.constexpr, TOKENS: tl.constexpr):
        t = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
        i = tl.arange(0, S)
        at = t[:, None, None] * S * S + i[None, :, None] * S + i[None, None, :]
        ok = (t < tokens)[:, None, None] & (i >= 0)[None, :, None] & (i >= 0)[None, None, :]
        step = tokens.to(tl.int64) * S * S
        g = tl.load(grad_ptr + at, mask=ok, other=0.0)
        for back in range(iterations):
            n = iterations - 1 - back
            x = tl.load(trace_ptr + 2 * n * step + at, mask=ok, other=1.0)
            total = tl.sum(x, 1, keep_dims=True) + eps
            g = (g - tl.sum(g * x, 1, keep_dims=True) / total) / total
            if n > 0:
                y = tl.load(trace_ptr + (2 * n - 1) * step + at, mask=ok, other=1.0)
                of_row = tl.sum(y, 2, keep_dims=True) + eps
                g = (g - tl.sum(g * y, 2, keep_dims=True) / of_row) / of_row
        p = tl.load(trace_ptr + at, mask=ok, other=1.0) - eps  # the softmax
        g = p * (g - tl.sum(g * p, 2, keep_dims=True))
        tl.store(out_ptr + at, g, mask=ok)


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, iterations, eps):
        z = z.contiguous()
        out = torch.empty_like(z)
        ctx.save_for_backward(z)
        ctx.settings = iterations, eps
        n, s, _ = z.shape
        _forward[(triton.cdiv(n, 64),)](z, z, out, n, iterations, eps, s, 64, False, num_warps=2)
        return out

    @staticmethod
    def backward(ctx, grad):
        (z,) = ctx.saved_tensors
        iterations, eps = ctx.settings
        n, s, _ = z.shape
        trace = torch.empty(2 * iterations, n, s, s, device=z.device)
        out = torch.empty_like(z)
        _forward[(triton.cdiv(n, 64),)](z, trace, out, n, iterations, eps, s, 64, True, num_warps=2)
        _backward[(triton.cdiv(n, 64),)](trace, grad.contiguous(), out, n, iterations, eps, s, 64, num_warps=2)
        return out, None, None


@torch.compiler.disable
def sinkhorn(z, iterations, eps):
    if z.is_cuda and z.dtype == torch.float32:
        return _Sinkhorn.apply(z, iterations, eps)
    return sinkhorn_reference(z, iterations, eps)
