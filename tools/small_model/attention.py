"""Sparse latent attention and its indexer, over rows of packed documents. Scores are held as whole matrices: plain, and fast enough here.

Documents begin at multiples of the pool size, so a pool never spans two. Shapes: b rows, t tokens of a row, h heads, p pools of a row.
"""
import torch
import torch.nn.functional as F

from compiled import piece, wide

DENSE = "dense"    # attends to everything; the indexer rests
INDEX = "index"    # attends to everything; the indexer learns what was attended to
SPARSE = "sparse"  # attends to the chosen pools and the tail; the indexer goes on learning
CHOOSE = "choose"  # as SPARSE, without learning: evaluation
FAR = -1e30


def rms_norm(x, weight, eps):
    f = wide(x)
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + eps) * wide(weight)).to(x.dtype)


@piece
def project(x, w_qa, qa_norm, w_qb, w_kva, kva_norm, w_kvb, c):
    """-> the query latent r [n, rank], q [n, h, d], k [n, h, d], v [n, h, d]"""
    r = rms_norm(x @ w_qa.T, qa_norm, c.eps)
    q = (r @ w_qb.T).unflatten(-1, (c.heads, c.qk_dim))
    latent = rms_norm(x @ w_kva.T, kva_norm, c.eps)
    k, v = (latent @ w_kvb.T).unflatten(-1, (c.heads, c.qk_dim + c.v_dim)).split([c.qk_dim, c.v_dim], -1)
    return r, q, k, v


def by_row(x, doc):
    """[b * t, h, d] -> [b, h, t, d]"""
    return x.unflatten(0, tuple(doc.shape)).transpose(1, 2)


def causal(doc):
    """[b, t, t]: the same document, not later"""
    t = torch.arange(doc.shape[1], device=doc.device)
    return (doc.unsqueeze(2) == doc.unsqueeze(1)) & (t.unsqueeze(1) >= t)


def visible_pools(doc, pool):
    """[b, t, p]: complete pools of the same document"""
    t = torch.arange(doc.shape[1], device=doc.device)
    return (doc.unsqueeze(2) == doc[:, ::pool].unsqueeze(1)) & (t.unsqueeze(1) >= t[pool - 1::pool])


def tail(doc, pool):
    """[t, t]: the tokens of the open pool, the query's own included"""
    t = torch.arange(doc.shape[1], device=doc.device)
    begin = (t + 1) // pool * pool
    return (t >= begin.unsqueeze(1)) & (t <= t.unsqueeze(1))


def softmax(scores, mask):
    return torch.softmax(wide(scores).masked_fill(~mask, FAR), -1)


def scores_of(q, k, c):
    return (q * c.qk_dim**-0.5) @ k.transpose(-1, -2)


def mass_of(probabilities, pool):
    """Attention mass per pool, summed over heads; only relative sizes matter. [b, t, p]"""
    return wide(probabilities).sum(1).unflatten(-1, (-1, pool)).sum(-1)


def merge(out):
    """[b, h, t, d] -> [b * t, h * d]"""
    return out.transpose(1, 2).flatten(0, 1).flatten(1)


@piece
def attend_dense(q, k, v, doc, c):
    q, k, v = by_row(q, doc), by_row(k, doc), by_row(v, doc)
    p = softmax(scores_of(q, k, c), causal(doc).unsqueeze(1)).to(v.dtype)
    return merge(p @ v)


@piece
def attend_dense_with_mass(q, k, v, doc, c):
    q, k, v = by_row(q, doc), by_row(k, doc), by_row(v, doc)
    p = softmax(scores_of(q, k, c), causal(doc).unsqueeze(1)).to(v.dtype)
    return merge(p @ v), mass_of(p.detach(), c.pool)


def chosen_tokens(chosen, doc, pool):
    return (chosen.repeat_interleave(pool, -1) | tail(doc, pool)) & causal(doc)


@piece
def attend_chosen(q, k, v, doc, chosen, c):
    q, k, v = by_row(q, doc), by_row(k, doc), by_row(v, doc)
    p = softmax(scores_of(q, k, c), chosen_tokens(chosen, doc, c.pool).unsqueeze(1)).to(v.dtype)
    return merge(p @ v)


@piece
def attend_chosen_with_mass(q, k, v, doc, chosen, c):
    """The mass is that of dense attention: what the choice left out counts against the indexer."""
    q, k, v = by_row(q, doc), by_row(k, doc), by_row(v, doc)
    s = scores_of(q, k, c)
    p = softmax(s, chosen_tokens(chosen, doc, c.pool).unsqueeze(1)).to(v.dtype)
    dense = softmax(s.detach(), causal(doc).unsqueeze(1)).to(v.dtype)
    return merge(p @ v), mass_of(dense, c.pool)


@piece
def index_scores(x, r, w_q, w_k, k_weight, k_bias, w_weights, gate, ape, doc, c):
    """[b, t, p] scores of all pools, visible or not"""
    b, t = doc.shape
    iq = (r @ w_q.T).reshape(b, t * c.index_heads, c.index_dim)
    key = F.layer_norm(wide(x @ w_k.T), (c.index_dim,), wide(k_weight), wide(k_bias), 1e-6)
    gamma = wide(x @ gate.T)
    pools = (b, t // c.pool, c.pool, c.index_dim)
    pooled = (torch.softmax(gamma.reshape(pools) + wide(ape), 2) * key.reshape(pools)).sum(2).to(x.dtype)
    z = wide(iq @ pooled.transpose(1, 2)).reshape(b, t, c.index_heads, -1) * c.index_dim**-0.5
    weights = wide(x @ w_weights.T).reshape(b, t, c.index_heads, 1) * c.index_heads**-0.5
    return (torch.relu(z) * weights).sum(2)


@piece
def choose(scores, doc, c):
    """[b, t, p]: the index_topk / pool best visible pools of each query"""
    visible = visible_pools(doc, c.pool)
    scores = scores.masked_fill(~visible, FAR)
    best = scores.topk(min(c.index_topk // c.pool, scores.shape[-1]), -1).values[..., -1:]
    return visible & (scores >= best)


@piece
def index_loss(scores, mass, doc, c):
    """KL of the indexer's distribution over pools from the attention's, per query that sees at least two pools."""
    visible = visible_pools(doc, c.pool)
    mass = mass.masked_fill(~visible, 0)
    target = mass / mass.sum(-1, keepdim=True).clamp_min(1e-20)
    log_q = torch.log_softmax(scores.masked_fill(~visible, FAR), -1).masked_fill(~visible, 0)
    kl = (target * (target.clamp_min(1e-20).log() - log_q)).sum(-1)
    rows = visible.sum(-1) >= 2
    return (kl * rows).sum() / rows.sum().clamp_min(1)


def sparse_attention(w, p, c, x, doc, mode):
    """x [b * t, width] -> (y, loss of the indexer or None, chosen pools or None, (r, q, k, v))"""
    parts = project(x, w[p + "q_a_proj.weight"], w[p + "q_a_layernorm.weight"], w[p + "q_b_proj.weight"],
                    w[p + "kv_a_proj_with_mqa.weight"], w[p + "kv_a_layernorm.weight"], w[p + "kv_b_proj.weight"], c)
    r, q, k, v = parts
    loss = chosen = None
    if mode == DENSE:
        out = attend_dense(q, k, v, doc, c)
    else:
        i = p + "indexer."
        with torch.set_grad_enabled(torch.is_grad_enabled() and mode != CHOOSE):
            scores = index_scores(x.detach(), r.detach(), w[i + "wq_b.weight"], w[i + "wk.weight"], w[i + "k_norm.weight"],
                                  w[i + "k_norm.bias"], w[i + "weights_proj.weight"], w[i + "index_kpool_compress_gate"],
                                  w[i + "index_kpool_compress_ape"], doc, c)
        if mode == INDEX:
            out, mass = attend_dense_with_mass(q, k, v, doc, c)
        else:
            chosen = choose(scores.detach(), doc, c)
            if mode == CHOOSE:
                out, mass = attend_chosen(q, k, v, doc, chosen, c), None
            else:
                out, mass = attend_chosen_with_mass(q, k, v, doc, chosen, c)
        if mass is not None:
            loss = index_loss(scores, mass, doc, c)
    return out @ w[p + "o_proj.weight"].T, loss, chosen, parts
