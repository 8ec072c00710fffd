"""The recurrence of Kimi Delta Attention over packed sequences: S <- diag(e^g) S; S <- S + k (beta (v - S^T k))^T; o = S^T q.

All functions take q, k, v, g [tokens, heads, dim] and beta [tokens, heads], q and k normalised and q scaled; `starts` holds the first
token of each sequence and, at its end, the number of tokens. The state is zero at each start.
"""
import functools

import torch

from compiled import wide

CHUNK = 16  # |g| < 5, so e^(sums of g) of a chunk stay within float32


def recurrent(q, k, v, g, beta, starts):
    """Token by token: the simplest form, and the oracle of the others. Returns outputs and the state of the last sequence."""
    out = torch.empty_like(v)
    state = None
    for begin, end in zip(starts[:-1], starts[1:]):
        state = v.new_zeros(v.shape[1], k.shape[2], v.shape[2])
        for t in range(begin, end):
            state = state * g[t].exp().unsqueeze(-1)
            delta = beta[t].unsqueeze(-1) * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
            state = state + k[t].unsqueeze(-1) * delta.unsqueeze(1)
            out[t] = torch.einsum("hkv,hk->hv", state, q[t])
    return out, state


def chunked_one(q, k, v, g, beta):
    """One sequence in chunks of 16 tokens; matrices instead of steps within a chunk."""
    n = q.shape[0]
    pad = -n % CHUNK  # k = 0 and g = 0 leave the state alone

    def chunks(x):
        x = torch.nn.functional.pad(x, (0, 0) * (x.dim() - 1) + (0, pad))
        return x.unflatten(0, (-1, CHUNK)).transpose(1, 2)  # [chunks, heads, 16, dim]

    q, k, v, g = chunks(q), chunks(k), chunks(v), chunks(g)
    beta = chunks(beta.unsqueeze(-1))
    total = g.cumsum(2)
    # Relative to the chunk's middle, the exponents stay below 40 in size.
    middle = total[:, :, CHUNK // 2:CHUNK // 2 + 1]
    rising, falling = (total - middle).exp(), (middle - total).exp()
    lower = torch.ones(CHUNK, CHUNK, device=q.device, dtype=torch.bool).tril(-1)
    mix = beta * ((k * rising) @ (k * falling).transpose(-1, -2)).masked_fill(~lower, 0)
    eye = torch.eye(CHUNK, device=q.device, dtype=q.dtype)
    inverse = torch.linalg.solve_triangular(eye + mix, eye.expand_as(mix), upper=False, unitriangular=True)
    from_start = total.exp()
    new = inverse @ (beta * v)
    erase = inverse @ (beta * k * from_start)
    within = ((q * rising) @ (k * falling).transpose(-1, -2)).masked_fill(~lower & ~eye.bool(), 0)
    to_end = k * (total[:, :, -1:] - total).exp()
    state = v.new_zeros(v.shape[1], k.shape[-1], v.shape[-1])
    out = []
    for i in range(q.shape[0]):
        value = new[i] - erase[i] @ state
        out.append((q[i] * from_start[i]) @ state + within[i] @ value)
        state = from_start[i, :, -1].unsqueeze(-1) * state + to_end[i].transpose(-1, -2) @ value
    return torch.stack(out).transpose(1, 2).flatten(0, 1)[:n]


def chunked(q, k, v, g, beta, starts):
    parts = [chunked_one(*(x[b:e] for x in (q, k, v, g, beta))) for b, e in zip(starts[:-1], starts[1:])]
    return torch.cat(parts)


def middle(configs):
    """Of the settings that a kernel might be tuned over: four warps, two stages, and large blocks of keys."""
    def distance(c):
        return abs(c.num_warps - 4), abs(c.num_stages - 2), c.kwargs.get("BV", 0), -c.kwargs.get("BK", 0), -c.kwargs.get("BS", 0)
    return min(configs, key=distance)


@functools.cache
def triton_kernels():
    """fla's kernels, each with one setting: to tune them all takes minutes, which is more than the tuning gives back here."""
    from triton.runtime import autotuner
    tuned = autotuner.Autotuner.__init__

    def untuned(self, fn, arg_names, configs, *rest, **keywords):
        tuned(self, fn, arg_names, [middle(configs)] if configs else configs, *rest, **keywords)
    autotuner.Autotuner.__init__ = untuned
    try:
        from fla.ops.kda import chunk_kda
    finally:
        autotuner.Autotuner.__init__ = tuned
    return chunk_kda


@torch.compiler.disable
def kda(q, k, v, g, beta, sequences):
    """The form for the device. `sequences`: (starts as an int64 tensor of the device, the same on the host)."""
    if not q.is_cuda:
        return chunked(wide(q), wide(k), wide(v), g, beta, sequences[1].tolist()).to(v.dtype)
    out, _ = triton_kernels()(q[None], k[None], v[None], g[None], beta[None], scale=1.0, safe_gate=True, cu_seqlens=sequences[0],
                              cu_seqlens_cpu=sequences[1])
    return out[0]
