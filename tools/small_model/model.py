"""glm5_next in plain PyTorch: the decoder as a function of weights and packed rows.

Weights are a dict under the released names (experts of a layer stacked, see weights.py) in the type to compute in: bfloat16 to train,
float32 or float64 to compare. Norms, mappings, gates, softmax and the router are computed in at least float32 whatever that type is.
"""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from attention import DENSE, rms_norm, sparse_attention
from compiled import piece, wide
from config import PREFIX
from kda import kda
from sinkhorn import sinkhorn


@dataclass
class Rows:
    """b packed rows of t tokens; n = b * t. Documents begin at multiples of the pool size."""
    tokens: torch.Tensor   # int64 [b, t]
    doc: torch.Tensor      # int32 [b, t], differs between neighbouring documents
    weight: torch.Tensor   # float32 [b, t]: how much the prediction of this token counts
    near: torch.Tensor     # bool [n, 3]: the token 3, 2, 1 before belongs to the same document
    sequences: tuple       # first tokens of all documents and n: int64 [documents + 1] on the device; the same on the host


def make_rows(tokens, doc, weight, device="cpu"):
    """From arrays [b, t]."""
    doc = np.asarray(doc)
    new = np.ones(doc.shape, bool)
    new[:, 1:] = doc[:, 1:] != doc[:, :-1]
    starts = np.append(np.flatnonzero(new), doc.size).astype(np.int64)
    flat = np.cumsum(new.reshape(-1))
    near = np.stack([np.concatenate([np.zeros(j, bool), flat[j:] == flat[:-j]]) if j < flat.size else np.zeros(flat.size, bool)
                     for j in (3, 2, 1)], -1)
    host = torch.from_numpy(starts)

    def put(x, dtype):
        return torch.as_tensor(np.ascontiguousarray(x)).to(dtype).to(device, non_blocking=True)
    return Rows(put(np.asarray(tokens).astype(np.int64), torch.int64), put(doc.astype(np.int32), torch.int32), put(weight, torch.float32),
                put(near, torch.bool), (host.to(device), host))


# --------------------------------------------------------------------------------------------------------------- hyper-connections
@piece
def mix(x, fn, base, scale, norm, c):
    """x [n, s, width] -> (post [n, s], logits of the mixing matrix [n, s, s], the normed input of the sublayer [n, width])"""
    s = c.streams
    f = wide(x.flatten(1))
    m = torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + c.eps) * (f @ wide(fn).T)
    base, scale = base.to(m.dtype), scale.to(m.dtype)
    pre = torch.sigmoid(m[:, :s] * scale[0] + base[:s]) + c.hc_eps
    post = 2 * torch.sigmoid(m[:, s:2 * s] * scale[1] + base[s:2 * s])
    z = (m[:, 2 * s:] * scale[2] + base[2 * s:]).unflatten(-1, (s, s))
    u = sum(pre[:, i:i + 1] * wide(x[:, i]) for i in range(s)).to(x.dtype)
    return post, z, rms_norm(u, norm, c.eps)


@piece
def expand(x, y, post, comb):
    """Stream i takes column i of the mixing matrix."""
    s = x.shape[1]
    old = [wide(x[:, j]) for j in range(s)]
    y = wide(y)
    return torch.stack([post[:, i:i + 1] * y + sum(comb[:, j, i:i + 1] * old[j] for j in range(s)) for i in range(s)], 1).to(x.dtype)


# ------------------------------------------------------------------------------------------------------------------------------ KDA
@piece
def kda_inputs(x, near, w_q, w_k, w_v, taps_q, taps_k, taps_v, f_a, f_b, a_log, dt_bias, w_b, c):
    """-> q, k, v [n, heads, dim] in the type of x, log-decays and beta in float32"""
    raw = x @ torch.cat([w_q, w_k, w_v]).T
    taps = wide(torch.cat([taps_q, taps_k, taps_v])[:, 0])
    mixed = wide(raw) * taps[:, 3]
    for back in (1, 2, 3):
        mixed = mixed + F.pad(wide(raw)[:-back], (0, 0, back, 0)) * near[:, 3 - back:4 - back] * taps[:, 3 - back]
    q, k, v = F.silu(mixed).unflatten(-1, (3, c.kda_heads, c.kda_dim)).unbind(1)
    q = q * torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6) * c.kda_dim**-0.5
    k = k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)
    a = wide((x @ f_a.T) @ f_b.T) + dt_bias.to(q.dtype)
    g = c.gate_bound * torch.sigmoid(a_log.to(q.dtype).exp().unsqueeze(-1) * a.unflatten(-1, (c.kda_heads, c.kda_dim)))
    return q.to(x.dtype), k.to(x.dtype), v.to(x.dtype), g, torch.sigmoid(wide(x @ w_b.T))


@piece
def kda_output(o, x, g_a, g_b, norm, w_o, c):
    gate = torch.sigmoid(wide((x @ g_a.T) @ g_b.T))
    f = wide(o)
    normed = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + c.eps) * wide(norm)
    return (normed.flatten(1) * gate).to(x.dtype) @ w_o.T


def kda_layer(w, p, c, x, rows):
    q, k, v, g, beta = kda_inputs(
        x, rows.near, w[p + "q_proj.weight"], w[p + "k_proj.weight"], w[p + "v_proj.weight"], w[p + "q_conv1d.weight"],
        w[p + "k_conv1d.weight"], w[p + "v_conv1d.weight"], w[p + "f_a_proj.weight"], w[p + "f_b_proj.weight"], w[p + "A_log"],
        w[p + "dt_bias"], w[p + "b_proj.weight"], c)
    o = kda(q, k, v, g, beta, rows.sequences)
    return kda_output(o, x, w[p + "g_a_proj.weight"], w[p + "g_b_proj.weight"], w[p + "o_norm.weight"], w[p + "o_proj.weight"], c)


# --------------------------------------------------------------------------------------------------------------------- feed-forward
def swiglu(gate, up, limit):
    return (F.silu(wide(gate).clamp(max=limit)) * wide(up).clamp(-limit, limit)).to(gate.dtype)


@piece
def mlp(x, gate, up, down, c):
    return swiglu(x @ gate.T, x @ up.T, c.limit) @ down.T


@piece
def moe(x, router, bias, gate, up, down, shared_gate, shared_up, shared_down, c):
    """-> (y, how many rows each expert got). All experts are computed for all rows and weighted by zero where not chosen: at this size
    cheaper than to gather."""
    score = torch.sigmoid(wide(x) @ wide(router).T)
    top = (score.detach() + bias.to(score.dtype)).topk(c.experts_per_token, -1).indices
    chosen = torch.zeros_like(score).scatter(1, top, 1.0)
    weight = score * chosen
    if c.renormalise:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    weight = weight * c.routed_scale
    h = swiglu(x @ gate.flatten(0, 1).T, x @ up.flatten(0, 1).T, c.limit).unflatten(-1, (c.experts, c.expert_width))
    h = (wide(h) * weight.unsqueeze(-1)).to(x.dtype).flatten(1)
    y = h @ down.permute(1, 0, 2).flatten(1).T
    return y + swiglu(x @ shared_gate.T, x @ shared_up.T, c.limit) @ shared_down.T, chosen.sum(0)


def moe_layer(w, p, c, x):
    return moe(x, w[p + "gate.weight"], w[p + "gate.e_score_correction_bias"], w[p + "experts.gate_proj.weight"],
               w[p + "experts.up_proj.weight"], w[p + "experts.down_proj.weight"], w[p + "shared_experts.gate_proj.weight"],
               w[p + "shared_experts.up_proj.weight"], w[p + "shared_experts.down_proj.weight"], c)


# -------------------------------------------------------------------------------------------------------------------------- decoder
@piece
def finish(x, norm, c):
    return rms_norm(sum(wide(x[:, i]) for i in range(x.shape[1])).div(x.shape[1]).to(x.dtype), norm, c.eps)


@dataclass
class Result:
    hidden: torch.Tensor  # [n, width]: after the last norm, what enters the head
    index_losses: list    # per sparse layer
    loads: dict           # router's name -> rows per expert
    streams: list         # if asked for: the streams [n, s, width] before and after each layer
    features: list        # if asked for: the stream means [n, width] after the captured layers


def decode(w, c, rows, mode=DENSE, capture=(), keep_streams=False):
    x = F.embedding(rows.tokens.flatten(), w[PREFIX + "embed_tokens.weight"]).unsqueeze(1).repeat(1, c.streams, 1)
    out = Result(x, [], {}, [x] if keep_streams else [], [])
    for layer, (is_kda, is_moe) in enumerate(c.layers):
        p = c.prefix(layer)

        def site(name, norm):
            post, z, u = mix(x, w[f"{p}hc_{name}_fn"], w[f"{p}hc_{name}_base"], w[f"{p}hc_{name}_scale"], w[f"{p}{norm}.weight"], c)
            return post, sinkhorn(z, c.sinkhorn, c.hc_eps), u

        post, comb, u = site("attn", "input_layernorm")
        if is_kda:
            y = kda_layer(w, p + "self_attn.", c, u, rows)
        else:
            y, loss, _, _ = sparse_attention(w, p + "self_attn.", c, u, rows.doc, mode)
            if loss is not None:
                out.index_losses.append(loss)
        x = expand(x, y, post, comb)
        post, comb, u = site("ffn", "post_attention_layernorm")
        if is_moe:
            y, out.loads[p + "mlp.gate."] = moe_layer(w, p + "mlp.", c, u)
        else:
            y = mlp(u, w[p + "mlp.gate_proj.weight"], w[p + "mlp.up_proj.weight"], w[p + "mlp.down_proj.weight"], c)
        x = expand(x, y, post, comb)
        if keep_streams:
            out.streams.append(x)
        if layer in capture:
            out.features.append(x.mean(1))
    out.hidden = finish(x, w[PREFIX + "norm.weight"], c)
    return out


@piece
def head(hidden, w_head):
    return wide(hidden @ w_head.T)


@piece
def next_token_loss(hidden, w_head, tokens, doc, weight):
    """-> (weighted mean loss, weighted share of right predictions); position t predicts token t + 1 of its document."""
    logits = wide(hidden @ w_head.T)
    target = F.pad(tokens[:, 1:], (0, 1)).flatten()
    inside = F.pad(doc[:, 1:] == doc[:, :-1], (0, 1)).flatten()
    count = F.pad(weight[:, 1:], (0, 1)).flatten() * inside
    loss = F.cross_entropy(logits, target, reduction="none")
    total = count.sum().clamp_min(1e-6)
    return (loss * count).sum() / total, ((logits.argmax(-1) == target) * count).sum() / total
