"""The tensors of a checkpoint: their table, initial values, the forms that training uses, and files in the released layout.

Training holds a dict of float32 masters under the released names, except that the experts of a layer are stacked:
`...mlp.experts.gate_proj.weight` [experts, width, hidden] stands for `...mlp.experts.{e}.gate_proj.weight`.
"""
import json
import math
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from config import PREFIX, load_config

BLOCK = 128
FP8_MAX = 448.0
E4M3 = torch.float8_e4m3fn

WEIGHT, QUANTISED, FLOAT = "bf16", "fp8", "fp32"  # how a released checkpoint stores a tensor


def tensor_table(c):
    """[(name, shape, storage, initial value)]; the initial value is (kind, number)."""
    table = []

    def linear(name, n, k, gain=1.0, storage=WEIGHT):
        table.append((name + ".weight", (n, k), storage, ("normal", gain / math.sqrt(k))))

    def norm(name, n):
        table.append((name + ".weight", (n,), WEIGHT, ("constant", 1.0)))

    # What a sublayer adds to the streams starts small, so that depth does not blow them up.
    out_gain = 1 / math.sqrt(2 * c.layer_count)

    def mlp(p, width):
        linear(p + "gate_proj", width, c.width, storage=QUANTISED)
        linear(p + "up_proj", width, c.width, storage=QUANTISED)
        linear(p + "down_proj", c.width, width, out_gain, storage=QUANTISED)

    def moe(p):
        linear(p + "gate", c.experts, c.width)
        table.append((p + "gate.e_score_correction_bias", (c.experts,), FLOAT, ("constant", 0.0)))
        if c.shared_experts:
            mlp(p + "shared_experts.", c.expert_width * c.shared_experts)
        e, m, d = c.experts, c.expert_width, c.width
        for name, shape, gain in (("gate", (e, m, d), 1), ("up", (e, m, d), 1), ("down", (e, d, m), out_gain / 2)):
            table.append((f"{p}experts.{name}_proj.weight", shape, QUANTISED, ("normal", gain / math.sqrt(shape[-1]))))

    def sparse(p):
        linear(p + "q_a_proj", c.q_rank, c.width, storage=QUANTISED)
        norm(p + "q_a_layernorm", c.q_rank)
        linear(p + "q_b_proj", c.heads * c.qk_dim, c.q_rank, storage=QUANTISED)
        linear(p + "kv_a_proj_with_mqa", c.kv_rank, c.width, storage=QUANTISED)
        norm(p + "kv_a_layernorm", c.kv_rank)
        linear(p + "kv_b_proj", c.heads * (c.qk_dim + c.v_dim), c.kv_rank)
        linear(p + "o_proj", c.width, c.heads * c.v_dim, out_gain, storage=QUANTISED)
        i = p + "indexer."
        linear(i + "wq_b", c.index_heads * c.index_dim, c.q_rank)
        linear(i + "wk", c.index_dim, c.width)
        norm(i + "k_norm", c.index_dim)
        table.append((i + "k_norm.bias", (c.index_dim,), WEIGHT, ("constant", 0.0)))
        linear(i + "weights_proj", c.index_heads, c.width)
        table.append((i + "index_kpool_compress_gate", (c.index_dim, c.width), WEIGHT, ("normal", 0.1 / math.sqrt(c.width))))
        table.append((i + "index_kpool_compress_ape", (c.pool, c.index_dim), WEIGHT, ("constant", 0.0)))

    def kda(p):
        w = c.kda_width
        for x in "qkv":
            linear(f"{p}{x}_proj", w, c.width)
        for x in "qkv":
            table.append((f"{p}{x}_conv1d.weight", (w, 1, 4), WEIGHT, ("conv", 0.0)))
        linear(p + "b_proj", c.kda_heads, c.width)
        linear(p + "f_a_proj", c.kda_dim, c.width)
        linear(p + "f_b_proj", w, c.kda_dim)
        linear(p + "g_a_proj", c.kda_dim, c.width)
        linear(p + "g_b_proj", w, c.kda_dim)
        table.append((p + "A_log", (c.kda_heads,), FLOAT, ("constant", 0.0)))
        table.append((p + "dt_bias", (w,), FLOAT, ("uniform", -9.0, -2.0)))  # half-lives from one token to a thousand
        norm(p + "o_norm", c.kda_dim)
        linear(p + "o_proj", c.width, w, out_gain)

    mixes = (2 + c.streams) * c.streams
    table.append((PREFIX + "embed_tokens.weight", (c.vocab, c.width), WEIGHT, ("normal", 1.0)))
    for layer, (is_kda, is_moe) in enumerate(c.layers):
        p = c.prefix(layer)
        for site in ("attn", "ffn"):
            table.append((f"{p}hc_{site}_fn", (mixes, c.streams * c.width), WEIGHT, ("normal", 0.2 / math.sqrt(c.streams * c.width))))
            table.append((f"{p}hc_{site}_base", (mixes,), FLOAT, ("hyper", c.streams)))
            table.append((f"{p}hc_{site}_scale", (3,), FLOAT, ("constant", 1.0)))
        norm(p + "input_layernorm", c.width)
        norm(p + "post_attention_layernorm", c.width)
        (kda if is_kda else sparse)(p + "self_attn.")
        moe(p + "mlp.") if is_moe else mlp(p + "mlp.", c.dense_width)
    if c.mtp:
        p = c.prefix(c.layer_count)
        for name in ("enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"):
            norm(p + name, c.width)
        linear(p + "eh_proj", c.width, 2 * c.width)
        sparse(p + "self_attn.")
        moe(p + "mlp.")
    norm(PREFIX + "norm", c.width)
    linear("lm_head", c.vocab, c.width)
    return table


def initial(shape, init, generator):
    kind, *numbers = init
    if kind == "normal":
        return torch.randn(shape, generator=generator) * numbers[0]
    if kind == "constant":
        return torch.full(shape, numbers[0])
    if kind == "uniform":
        return numbers[0] + torch.rand(shape, generator=generator) * (numbers[1] - numbers[0])
    if kind == "conv":  # the current token passes, the past enters a little
        w = torch.randn(shape, generator=generator) * 0.1
        w[..., -1] += 1
        return w
    if kind == "hyper":  # every stream is read about alike and written alike; streams keep to themselves
        s = numbers[0]
        base = torch.zeros(shape)
        base[:s] = -math.log(s - 1)  # sigmoid = 1 / streams
        base[2 * s:] = 4 * torch.eye(s).flatten()
        return base + torch.randn(shape, generator=generator) * 0.3
    raise KeyError(kind)


def initialise(c, seed):
    g = torch.Generator().manual_seed(seed)
    return {name: initial(shape, init, g) for name, shape, _, init in tensor_table(c)}


# ------------------------------------------------------------------------------------------------------------------ quantisation
def block_scales(w):
    """amax / 448 of each 128 x 128 block, ragged at the edges; [..., blocks of rows, blocks of columns]."""
    n, k = w.shape[-2:]
    padded = torch.nn.functional.pad(w.abs(), (0, -k % BLOCK, 0, -n % BLOCK))
    blocks = padded.unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, BLOCK))
    return blocks.amax((-3, -1)).clamp_min(1e-12) / FP8_MAX


def spread(scales, n, k):
    return scales.repeat_interleave(BLOCK, -2)[..., :n, :].repeat_interleave(BLOCK, -1)[..., :k]


def quantise(w):
    """float32 [..., n, k] -> e4m3 and scales."""
    scales = block_scales(w)
    return (w / spread(scales, *w.shape[-2:])).clamp(-FP8_MAX, FP8_MAX).to(E4M3), scales


def dequantise(q, scales):
    return q.float() * spread(scales, *q.shape[-2:])


def rounded(w):
    """The value that FP8 storage leaves; the gradient passes straight through."""
    return w + (dequantise(*quantise(w.detach())) - w.detach())


def live_weights(masters, storage, dtype, fp8):
    """What one step computes with: matrices in `dtype` (FP8 matrices rounded to FP8 first if `fp8`), FLOAT tensors as they are."""
    live = {}
    for name, w in masters.items():
        kind = storage[name]
        if kind == QUANTISED and fp8:
            w = rounded(w)
        live[name] = w if kind == FLOAT else w.to(dtype)
    return live


def storage_of(c):
    return {name: storage for name, _, storage, _ in tensor_table(c)}


# ------------------------------------------------------------------------------------------------------------------------- files
def save_released(masters, c, config_file, folder, fp8=True):
    """Writes config.json and model.safetensors in the released layout: FP8 blocks (or BF16 if not `fp8`)."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    storage = storage_of(c)
    out = {}
    for name, w in masters.items():
        w = w.detach().float().cpu()
        parts = [(name, w)]
        if ".mlp.experts." in name:
            parts = [(name.replace(".experts.", f".experts.{e}."), w[e]) for e in range(c.experts)]
        for part, x in parts:
            if storage[name] == QUANTISED and fp8:
                out[part], out[part + "_scale_inv"] = (t.contiguous() for t in quantise(x))
            else:
                out[part] = x.to(torch.float32 if storage[name] == FLOAT else torch.bfloat16).contiguous()
    save_file(out, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads(Path(config_file).read_text())
    if not fp8:
        settings.pop("quantization_config")
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")


def load_released(folder, dtype=torch.float32):
    """(Config, masters) of a folder in the released layout; FP8 matrices are multiplied out in float32."""
    folder = Path(folder)
    c = load_config(folder)
    raw = {}
    for file in sorted(folder.glob("model*.safetensors")):
        raw.update(load_file(file))
    flat = {}
    for name, t in raw.items():
        if name.endswith("_scale_inv") or name.startswith("model.visual."):
            continue
        scale = raw.get(name + "_scale_inv")
        flat[name] = (t.to(dtype) if scale is None else dequantise(t, scale).to(dtype))
    masters = {}
    for name, shape, _, _ in tensor_table(c):
        if ".mlp.experts." in name:
            masters[name] = torch.stack([flat.pop(re.sub(r"\.experts\.", f".experts.{e}.", name)) for e in range(c.experts)])
        else:
            masters[name] = flat.pop(name)
        if tuple(masters[name].shape) != tuple(shape):
            raise SystemExit(f"{folder}: {name} is {tuple(masters[name].shape)}, config.json says {tuple(shape)}")
    if flat:
        raise SystemExit(f"{folder}: tensors that the configuration does not name: {sorted(flat)[:5]}")
    return c, masters


def copy_tokenizer(source, folder):
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (Path(source) / name).exists():
            shutil.copy(Path(source) / name, folder)
