"""The DFlash2 drafter: proposes a block of tokens at once from features of the target, then walks a path through the candidates.

Its own few layers attend to the target's features of all committed tokens (their keys and values are projections of the features, there is
no recurrence) and, in both directions, to the block [last token, MASK x 7]. Embedding and head are the target's.
Training sees many blocks of each row at once: blocks are [rows, anchors, block], an anchor is the position of the block's known token.
"""
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from attention import FAR, rms_norm
from compiled import piece, wide


@dataclass(frozen=True)
class DrafterConfig:
    width: int  # hidden_size, the target's
    vocab: int
    target_layers: tuple  # features: stream means after these layers, from 0
    mask_token: int
    layers: int = 2
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 128
    inner: int = 256  # intermediate_size
    block: int = 8
    window: int = 2048  # context tokens that a block sees
    rope_theta: float = 10000.0
    eps: float = 1e-6
    conv_group: int = 16
    rank: int = 32  # of the candidate selector
    top: int = 16  # candidates of a position

    @property
    def groups(self):
        return self.width // self.conv_group


def drafter_table(c):
    """[(name, shape, gain or None for ones, zeros)]"""
    d, out = c.width, []

    def linear(name, n, k, gain=1.0):
        out.append((name + ".weight", (n, k), gain / math.sqrt(k)))
    linear("fc", d, d * len(c.target_layers))
    out.append(("hidden_norm.weight", (d,), "ones"))
    for i in range(c.layers):
        p = f"layers.{i}."
        out.append((p + "input_layernorm.weight", (d,), "ones"))
        out.append((p + "post_attention_layernorm.weight", (d,), "ones"))
        linear(p + "self_attn.q_proj", c.heads * c.head_dim, d)
        linear(p + "self_attn.k_proj", c.kv_heads * c.head_dim, d)
        linear(p + "self_attn.v_proj", c.kv_heads * c.head_dim, d)
        linear(p + "self_attn.o_proj", d, c.heads * c.head_dim, 0.5)
        out.append((p + "self_attn.q_norm.weight", (c.head_dim,), "ones"))
        out.append((p + "self_attn.k_norm.weight", (c.head_dim,), "ones"))
        linear(p + "mlp.gate_proj", c.inner, d)
        linear(p + "mlp.up_proj", c.inner, d)
        linear(p + "mlp.down_proj", d, c.inner, 0.5)
        for site in ("attention_conv", "mlp_conv"):
            out.append((f"{p}{site}.base_kernel", (2, 2, d), "tap"))
            out.append((f"{p}{site}.kernel_projection.weight", (4 * c.groups, d), "zeros"))
    out.append(("norm.weight", (d,), "ones"))
    out.append(("candidate_selector.predecessor_codebook", (c.vocab, c.rank), 0.5))
    out.append(("candidate_selector.successor_codebook", (c.vocab, c.rank), "zeros"))
    out.append(("candidate_selector.hidden_projection.weight", (c.rank, d), 1 / math.sqrt(d)))
    return out


def initialise_drafter(c, seed):
    g = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape, kind in drafter_table(c):
        x = torch.zeros(shape)
        if kind == "ones":
            x += 1
        elif kind == "tap":
            x[:, 0] = 1
        elif kind != "zeros":
            x = torch.randn(shape, generator=g) * kind
        weights[name] = x
    return weights


def rotated(x, position, theta):
    """Rotary embedding (halves) of x [..., heads, dim] at position [...]."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = (position.float().unsqueeze(-1) * frequency).unsqueeze(-2)
    a, b = wide(x).chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1).to(x.dtype)


@piece
def context_features(features, fc, norm, c):
    return rms_norm(features @ fc.T, norm, c.eps)


@piece
def context_keys(x, position, w_k, w_v, k_norm, c):
    """x [b, t, width] -> keys and values [b, t, kv heads, dim]"""
    k = rms_norm((x @ w_k.T).unflatten(-1, (c.kv_heads, c.head_dim)), k_norm, c.eps)
    return rotated(k, position, c.rope_theta), (x @ w_v.T).unflatten(-1, (c.kv_heads, c.head_dim))


def convolve(x, base, dynamic, c):
    """x [..., block, width]: the token itself and the one before, weighted per channel (base) and group (dynamic [..., block, 2, g])."""
    kernel = wide(base) + wide(dynamic).repeat_interleave(c.conv_group, -1)
    return (wide(x) * kernel[..., 0, :] + F.pad(wide(x)[..., :-1, :], (0, 0, 1, 0)) * kernel[..., 1, :]).to(x.dtype)


@piece
def block_attention(r, norm, base, projection, w_q, w_k, w_v, w_o, q_norm, k_norm, context, allowed, anchor, c):
    """r [b, a, block, width]; context: its keys and values; allowed [b, a, t]: the context that each block sees"""
    context_k, context_v = context
    b, a, size, _ = r.shape
    x = rms_norm(r, norm, c.eps)
    dynamic = (x @ projection.T).unflatten(-1, (2, 2, c.groups))
    y = convolve(x, base[0], dynamic[..., 0, :, :], c)
    position = anchor.unsqueeze(-1) + torch.arange(size, device=r.device)
    q = rotated(rms_norm((y @ w_q.T).unflatten(-1, (c.heads, c.head_dim)), q_norm, c.eps), position, c.rope_theta)
    k = rotated(rms_norm((y @ w_k.T).unflatten(-1, (c.kv_heads, c.head_dim)), k_norm, c.eps), position, c.rope_theta)
    v = (y @ w_v.T).unflatten(-1, (c.kv_heads, c.head_dim))
    share = c.heads // c.kv_heads
    q = q.permute(0, 3, 1, 2, 4).unflatten(1, (c.kv_heads, share)) * c.head_dim**-0.5  # [b, kv, share, a, block, dim]
    far = q.flatten(2, 4) @ context_k.permute(0, 2, 3, 1)  # [b, kv, share * a * block, t]
    far = wide(far.unflatten(2, (share, a, size))).masked_fill(~allowed[:, None, None, :, None, :], FAR)
    k, v = (z.permute(0, 3, 1, 2, 4).unsqueeze(2) for z in (k, v))  # [b, kv, 1, a, block, dim]
    near = wide(q @ k.transpose(-1, -2))
    p = torch.softmax(torch.cat([far, near], -1), -1).to(r.dtype)
    t = far.shape[-1]
    out = (p[..., :t].flatten(2, 4) @ context_v.transpose(1, 2)).unflatten(2, (share, a, size)) + p[..., t:] @ v
    out = out.flatten(1, 2).permute(0, 2, 3, 1, 4).flatten(-2) @ w_o.T
    return r + convolve(out, base[1], dynamic[..., 1, :, :], c)


@piece
def block_mlp(r, norm, base, projection, gate, up, down, c):
    x = rms_norm(r, norm, c.eps)
    dynamic = (x @ projection.T).unflatten(-1, (2, 2, c.groups))
    y = convolve(x, base[0], dynamic[..., 0, :, :], c)
    y = (F.silu(wide(y @ gate.T)) * wide(y @ up.T)).to(r.dtype) @ down.T
    return r + convolve(y, base[1], dynamic[..., 1, :, :], c)


@piece
def last_norm(r, norm, c):
    return rms_norm(r, norm, c.eps)


def propose(w, c, features, doc, anchor, first, embedding):
    """features [b, t, width * captured], anchor [b, a] positions (context: earlier tokens of the document), first [b, a] known tokens ->
    hidden [b, a, block, width]; entries 1.. stand for the tokens after the known one."""
    b, t = doc.shape
    context = context_features(features, w["fc.weight"], w["hidden_norm.weight"], c)
    where = torch.arange(t, device=doc.device)
    begin = anchor.unsqueeze(-1)
    allowed = (where < begin) & (where >= begin - c.window) & (doc.unsqueeze(1) == doc.gather(1, anchor).unsqueeze(-1))
    ids = torch.full((*anchor.shape, c.block), c.mask_token, device=doc.device)
    ids[..., 0] = first
    r = F.embedding(ids, embedding)
    for i in range(c.layers):
        p = f"layers.{i}."
        a = p + "self_attn."
        k, v = context_keys(context, where.expand(b, t), w[a + "k_proj.weight"], w[a + "v_proj.weight"], w[a + "k_norm.weight"], c)
        r = block_attention(r, w[p + "input_layernorm.weight"], w[p + "attention_conv.base_kernel"],
                            w[p + "attention_conv.kernel_projection.weight"], w[a + "q_proj.weight"], w[a + "k_proj.weight"],
                            w[a + "v_proj.weight"], w[a + "o_proj.weight"], w[a + "q_norm.weight"], w[a + "k_norm.weight"], (k, v), allowed,
                            anchor, c)
        r = block_mlp(r, w[p + "post_attention_layernorm.weight"], w[p + "mlp_conv.base_kernel"],
                      w[p + "mlp_conv.kernel_projection.weight"], w[p + "mlp.gate_proj.weight"], w[p + "mlp.up_proj.weight"],
                      w[p + "mlp.down_proj.weight"], c)
    return last_norm(r, w["norm.weight"], c)


@piece
def candidate_scores(hidden, w_head, predecessor, predecessor_codebook, successor_codebook, projection, c):
    """hidden [..., width], predecessor [...] -> (logits [..., vocab], candidates [..., top], their scores after that predecessor)"""
    logits = wide(hidden @ w_head.T)
    best, candidates = logits.topk(c.top, -1)
    path = wide(F.embedding(predecessor, predecessor_codebook)) * wide(hidden @ projection.T)
    return logits, candidates, best + (path.unsqueeze(-2) * wide(F.embedding(candidates, successor_codebook))).sum(-1)


@piece
def block_loss(logits, candidates, scores, target, weight):
    """target [...], weight [...] -> (backbone's loss, selector's loss, share of right walks, share of targets among the candidates)"""
    total = weight.sum().clamp_min(1e-6)
    backbone = F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="none").view_as(weight)
    hit = candidates == target.unsqueeze(-1)
    reachable = hit.any(-1)
    selector = -(torch.log_softmax(scores, -1) * hit).sum(-1)
    right = (candidates.gather(-1, scores.argmax(-1, keepdim=True)).squeeze(-1) == target) * weight
    return ((backbone * weight).sum() / total, (selector * weight * reachable).sum() / total, right.sum() / total,
            (reachable * weight).sum() / total)


# Names in the drafter's config.json.
KEYS = dict(width="hidden_size", vocab="vocab_size", target_layers="target_layer_ids", mask_token="mask_token_id",
            layers="num_hidden_layers", heads="num_attention_heads", kv_heads="num_key_value_heads", head_dim="head_dim",
            inner="intermediate_size", block="block_size", window="sliding_window", rope_theta="rope_theta",
            eps="rms_norm_eps", conv_group="conv_group_size", rank="selector_rank", top="selector_top_k")


def save_drafter(weights, c, folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stored = {n: x.detach().to(torch.bfloat16).contiguous().cpu() for n, x in weights.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    settings = {KEYS[k]: v for k, v in asdict(c).items()}
    settings.update(architectures=["DFlash2DraftModel"], model_type="dflash2", hidden_act="silu", conv_kernel_size=2, dtype="bfloat16",
                    layer_types=["sliding_attention"] * c.layers)
    (folder / "config.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def load_drafter(folder):
    folder = Path(folder)
    settings = json.loads((folder / "config.json").read_text())
    fields = {k: settings[name] for k, name in KEYS.items()}
    c = DrafterConfig(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
    return c, {n: x.float() for n, x in load_file(folder / "model.safetensors").items()}
