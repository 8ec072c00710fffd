#!/usr/bin/env python3
"""Baton beside llama.cpp and transformers on the CPU: one checkpoint, one machine, one run.

    bench/cpu_peers.py --baton build/release/bin/baton [--threads 2] [--json FILE]
        [--llama-bench PATH --llama-source DIR]      llama.cpp, built beforehand; DIR holds its convert_hf_to_gguf.py
        [--no-transformers]                          needs torch and transformers >= 5.17 in this interpreter

The checkpoint comes from `baton synth --config bench/configs/cpu-43m.json` (random BF16 weights). Peers alternate with Baton, so that a
change of the machine's speed meets all of them; the figures are medians. The floor is stated beside them: the weights that one token
touches bound decode by bandwidth, its FLOPs bound prefill by matrix rate (`bench_gemm` measures both rates).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = os.path.join(HERE, "configs", "cpu-43m.json")


def run(command, **kw):
    result = subprocess.run(command, capture_output=True, text=True, **kw)
    if result.returncode != 0:
        sys.exit(f"cpu_peers: {' '.join(map(str, command))} failed with {result.returncode}:\n{result.stderr[-2000:]}")
    return result.stdout


def text_config():
    with open(CONFIG) as f:
        return json.load(f)["text_config"]


# ---------------------------------------------------------------------------------------------------------------------------- Baton
def baton(program, model, threads, prompt_tokens, new_tokens, extra=()):
    vocabulary = text_config()["vocab_size"]
    ids = ",".join(str((i * 7919 + 13) % (vocabulary - 16)) for i in range(prompt_tokens))
    with tempfile.NamedTemporaryFile("w", suffix=".ids") as f:
        f.write(ids)
        f.flush()
        out = run([program, "generate", "--model", model, "--prompt-ids-file", f.name, "--max-tokens", str(new_tokens), "--ignore-eos",
                   "--threads", str(threads), "--format", "json", *extra])
    return json.loads(out)["timings"]


# ------------------------------------------------------------------------------------------------------------------------ llama.cpp
def write_tokenizer(folder):
    """A byte-level BPE of the model's vocabulary size: llama.cpp wants one in its file, nothing here tokenises."""
    special = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"]
    special += ["<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
    size = text_config()["vocab_size"]
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    hidden = [b for b in range(256) if b not in shown]
    alphabet = [chr(b) for b in shown] + [chr(256 + i) for i in range(len(hidden))]
    vocab, merges = {c: i for i, c in enumerate(alphabet)}, []
    for a in alphabet:
        for b in alphabet:
            if len(vocab) == size - len(special):
                break
            vocab[a + b] = len(vocab)
            merges.append([a, b])
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    added = [dict(id=len(vocab) + i, content=t, **flags) for i, t in enumerate(special)]
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
                     pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True),
                     post_processor=None,
                     decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
                     model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="",
                                fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocab, merges=merges))
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump(dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|endoftext|>", pad_token="<|endoftext|>"), f)


CONVERT = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
import conversion.base as base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "glm4"   # the release's pre-tokeniser; this vocabulary has no known hash
script = sys.argv[1] + "/convert_hf_to_gguf.py"
sys.argv = [script] + sys.argv[2:]
runpy.run_path(script, run_name="__main__")
"""


def convert(source, model, gguf):
    write_tokenizer(model)
    env = dict(os.environ, PYTHONPATH=os.path.join(source, "gguf-py"))
    run([sys.executable, "-c", CONVERT, source, model, "--outtype", "bf16", "--outfile", gguf], env=env)


def llama(bench, gguf, threads, prompt_tokens, new_tokens):
    out = run([bench, "-m", gguf, "-t", str(threads), "-p", str(prompt_tokens), "-n", str(new_tokens), "-r", "1", "-o", "json"])
    rates = {}
    for row in json.loads(out):
        rates["prefill" if row["n_prompt"] else "decode"] = row["avg_ts"]
    return rates


# --------------------------------------------------------------------------------------------------------------------- transformers
def transformers_decode(model, threads, new_tokens):
    import torch
    from transformers import AutoModelForImageTextToText
    torch.set_num_threads(threads)
    m = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.bfloat16).eval()
    ids = torch.arange(64)[None]
    with torch.no_grad():
        out = m(input_ids=ids, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
        start = time.perf_counter()
        for _ in range(new_tokens):
            out = m(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
    return new_tokens / (time.perf_counter() - start)


# --------------------------------------------------------------------------------------------------------------------------- floors
def touched_parameters(t):
    """Parameters that one token multiplies with, head included, embedding row left out."""
    d, la = t["hidden_size"], t["linear_attn_config"]
    c = la["num_heads"] * la["head_dim"]
    kda = 4 * d * c + la["num_heads"] * d + 2 * la["head_dim"] * (d + c)
    h, qr, kr = t["num_attention_heads"], t["q_lora_rank"], t["kv_lora_rank"]
    sparse = d * (qr + kr) + h * t["qk_nope_head_dim"] * qr + kr * h * (t["qk_nope_head_dim"] + t["v_head_dim"]) + d * h * t["v_head_dim"]
    sparse += t["index_head_dim"] * (t["index_n_heads"] * qr + 2 * d) + t["index_n_heads"] * d
    expert = 3 * d * t["moe_intermediate_size"]
    moe = (t["num_experts_per_tok"] + t["n_shared_experts"]) * expert + t["n_routed_experts"] * d
    mhc = 2 * (2 + t["hc_mult"]) * t["hc_mult"] ** 2 * d
    total = t["vocab_size"] * d
    for attention, mlp in zip(t["layer_types"], t["mlp_layer_types"]):
        total += mhc + (kda if attention == "linear_attention" else sparse) + (moe if mlp == "sparse" else 3 * d * t["intermediate_size"])
    return total


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--baton", required=True)
    p.add_argument("--llama-bench")
    p.add_argument("--llama-source")
    p.add_argument("--no-transformers", action="store_true")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prompt", type=int, default=2048)
    p.add_argument("--decode", type=int, default=128)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json")
    a = p.parse_args()
    if bool(a.llama_bench) != bool(a.llama_source):
        p.error("--llama-bench and --llama-source go together")

    with tempfile.TemporaryDirectory() as work:
        model = os.path.join(work, "model")
        run([a.baton, "synth", "--config", CONFIG, "--seed", "1", "--format", "bf16", model])
        gguf = os.path.join(work, "model.gguf")
        if a.llama_bench:
            convert(a.llama_source, model, gguf)
        samples = {}

        def add(key, value):
            samples.setdefault(key, []).append(value)
        for _ in range(a.rounds):
            t = baton(a.baton, model, a.threads, a.prompt, 1)
            add("baton prefill", t["prefill_tokens_per_s"])
            add("baton load s", t["load_s"])
            add("baton decode", baton(a.baton, model, a.threads, 16, a.decode + 1)["decode_tokens_per_s"])
            if a.llama_bench:
                rates = llama(a.llama_bench, gguf, a.threads, a.prompt, a.decode)
                add("llama.cpp prefill", rates["prefill"])
                add("llama.cpp decode", rates["decode"])
        if not a.no_transformers:
            add("transformers decode", transformers_decode(model, a.threads, 24))

    result = {k: statistics.median(v) for k, v in samples.items()}
    spread = {k: (min(v), max(v)) for k, v in samples.items()}
    parameters = touched_parameters(text_config())
    print(f"{a.threads} threads, prompt {a.prompt}, decode {a.decode} at batch 1; median of {a.rounds} (smallest ... largest)")
    for key, value in result.items():
        print(f"  {key:22} {value:10.1f}   ({spread[key][0]:.1f} ... {spread[key][1]:.1f})")
    for phase in ("prefill", "decode"):
        if f"llama.cpp {phase}" in result:
            print(f"  Baton / llama.cpp, {phase}: {result[f'baton {phase}'] / result[f'llama.cpp {phase}']:.2f}x")
    if "transformers decode" in result:
        print(f"  Baton / transformers, decode: {result['baton decode'] / result['transformers decode']:.1f}x")
    mega = 2 * parameters / 1e6
    print(f"  one token touches {parameters / 1e6:.1f} M parameters: {mega:.1f} MB of BF16 weights, {mega:.1f} MFLOP")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(dict(result=result, spread=spread, touched_parameters=parameters, arguments=vars(a)), f, indent=1)


if __name__ == "__main__":
    main()
