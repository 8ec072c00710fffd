#!/usr/bin/env python3
"""Asks a trained model the held-out questions, greedily, and measures how many drafted tokens would be accepted.

    python evaluate.py MODEL [--drafter FOLDER] [--dense] [--out results.json] [--against eval.json]

--against names what `baton eval --json` wrote: answers are then compared word by word.

There is no cache: the whole sequence is run again for each token, but an expected answer is tried as a guess, so that a right answer takes
one pass. Greedy answers do not depend on the guess. Drafts are then judged against the model's own answers, for all positions in one pass.
"""
import argparse
import json
import re
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from attention import CHOOSE, DENSE
from config import PREFIX
from data import render, testsets
from data.tokenizer import FOLDER as TOKENIZER, Encoder
from drafter import candidate_scores, load_drafter, propose
from model import decode, make_rows
from mtp import draft
from weights import live_weights, load_released, storage_of

LIMITS = {"story": 200, "tools": 160, "arithmetic": 200, "recall": 40}  # tokens of an answer
DEFAULT_LIMIT = 120
BUCKET = 64  # rows are lengthened to its multiples


class Model:
    def __init__(self, folder, device, dtype):
        self.c, masters = load_released(folder)
        masters = {n: x.to(device) for n, x in masters.items()}
        self.w = live_weights(masters, storage_of(self.c), dtype, fp8=False)
        self.device = device

    def rows(self, sequences):
        length = -(-max(len(s) for s in sequences) // BUCKET) * BUCKET
        tokens = np.zeros((len(sequences), length), np.int64)
        for row, s in zip(tokens, sequences):
            row[:len(s)] = s
        doc = np.repeat(np.arange(len(sequences))[:, None], length, 1)
        return make_rows(tokens, doc, np.ones(tokens.shape, np.float32), self.device)

    def predictions(self, sequences, mode):
        """What the model says after each token: int64 arrays, one per sequence."""
        rows = self.rows(sequences)
        hidden = decode(self.w, self.c, rows, mode).hidden
        best = torch.cat([(part @ self.w["lm_head.weight"].T).argmax(-1) for part in hidden.split(1 << 16)])
        best = best.view(rows.tokens.shape).cpu().numpy()
        return [b[:len(s)] for b, s in zip(best, sequences)]


def greedy(model, prompts, guesses, limits, ends, mode, tokens_per_pass):
    """The greedy continuation of each prompt, ended by one of `ends` or its limit."""
    done = [None] * len(prompts)
    state = {i: ([], list(g)) for i, g in enumerate(guesses)}
    order = sorted(state, key=lambda i: len(prompts[i]))
    while order:
        groups, group = [], []
        for i in order:
            if group and (len(group) + 1) * (len(prompts[i]) + limits[i]) > tokens_per_pass:
                groups.append(group)
                group = []
            group.append(i)
        groups.append(group)
        for group in groups:
            sequences = [np.concatenate([prompts[i], state[i][0], state[i][1]]).astype(np.int64) for i in group]
            for i, said in zip(group, model.predictions(sequences, mode)):
                answer, guess = state[i]
                at = len(prompts[i]) + len(answer) - 1
                while True:
                    answer.append(int(said[at]))
                    if answer[-1] in ends or len(answer) >= limits[i]:
                        done[i] = answer
                        break
                    if not guess or guess.pop(0) != answer[-1]:
                        guess.clear()
                        break
                    at += 1
        order = [i for i in order if done[i] is None]
    return done


# --------------------------------------------------------------------------------------------------------------------------- judging
def calls_in(text):
    calls = []
    for body in re.findall(r"<tool_call>(.*?)</tool_call>", text, re.S):
        name = body.split("<arg_key>")[0].strip()
        pairs = re.findall(r"<arg_key>(.*?)</arg_key><arg_value>(.*?)</arg_value>", body, re.S)
        calls.append((name, dict(pairs)))
    return calls


def same_value(text, wanted):
    if isinstance(wanted, str):
        return text == wanted
    try:
        return json.loads(text) == wanted
    except ValueError:
        return False


def right(item, text):
    content = text.split("</think>", 1)[-1].strip()
    check, answer = item["check"], item["answer"]
    if check == "number":
        numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", content)
        return bool(numbers) and float(numbers[-1].replace(",", "")) == float(str(answer).replace(",", ""))
    if check == "text":
        return content == answer.strip()
    if check == "contains":
        return answer in content
    if check == "json":
        try:
            return json.loads(content) == answer
        except ValueError:
            return False
    if check == "tools":
        found = calls_in(content)
        return len(found) == len(answer) and all(
            name == a["name"] and set(arguments) == set(a["arguments"]) and all(same_value(arguments[k], v)
                                                                                for k, v in a["arguments"].items())
            for (name, arguments), a in zip(found, answer))
    return None


def guess_text(item):
    """Pieces of the answer that is expected; it need not be how the model says it."""
    answer = item["answer"]
    if item["check"] == "tools":
        calls = [{"function": call} for call in answer]
        return [*render.assistant_pieces({"content": "", "tool_calls": calls}), "<|observation|>"]
    if item["check"] in ("text", "json"):
        content = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        return ["</think>", content.strip(), "<|user|>"]
    return []


# -------------------------------------------------------------------------------------------------------------------------- drafting
def rounds(hits, first, last):
    """Rounds of drafting along an answer: from the row whose next token is known at `first`, until all up to `last` is there. hits [t, 7]:
    whether the draft of step k from row t is right. -> (tokens per round, each round's tokens where all eight could count)"""
    emitted, full, row = [], [], first
    while row + 1 < last:
        run = 0
        while run < hits.shape[1] and hits[row, run]:
            run += 1
        emitted.append(min(run + 1, last - row - 1))
        if row + 8 < last:
            full.append(run + 1)
        row += run + 1
    return emitted, full


def mtp_hits(model, sequences, mode):
    rows = model.rows(sequences)
    hidden = decode(model.w, model.c, rows, mode).hidden
    outputs, _, _ = draft(model.w, model.c, rows, hidden, mode)
    hits = []
    for step, x in enumerate(outputs, 1):
        best = (x @ model.w["lm_head.weight"].T).argmax(-1).view(rows.tokens.shape)
        hits.append(best == torch.nn.functional.pad(rows.tokens[:, step + 1:], (0, step + 1), value=-1))
    return torch.stack(hits, -1).cpu().numpy()


def drafter_hits(model, drafter, dc, sequences, starts, mode):
    """hits[t]: drafts of the block whose known token is t + 1, so that row t means the same as for the MTP layer."""
    rows = model.rows(sequences)
    features = torch.cat(decode(model.w, model.c, rows, mode, capture=dc.target_layers).features, -1)
    b, t = rows.tokens.shape
    most = max(len(s) - n for s, n in zip(sequences, starts)) + 1
    anchor = torch.tensor(starts, device=model.device).unsqueeze(-1) + torch.arange(most, device=model.device)
    anchor = anchor.clamp(max=t - 1)
    tokens = torch.nn.functional.pad(rows.tokens, (0, dc.block), value=-1)
    target = tokens.gather(1, (anchor.unsqueeze(-1) + torch.arange(1, dc.block, device=model.device)).flatten(1)).view(b, most, -1)
    first = rows.tokens.gather(1, anchor)
    hidden = propose(drafter, dc, features.unflatten(0, (b, t)), rows.doc, anchor, first, model.w[PREFIX + "embed_tokens.weight"])
    before = torch.cat([first.unsqueeze(-1), target[..., :-1]], -1).clamp(min=0)
    s = "candidate_selector."
    _, candidates, scores = candidate_scores(hidden[..., 1:, :], model.w["lm_head.weight"], before, drafter[s + "predecessor_codebook"],
                                             drafter[s + "successor_codebook"], drafter[s + "hidden_projection.weight"], dc)
    found = candidates.gather(-1, scores.argmax(-1, keepdim=True)).squeeze(-1) == target
    hits = np.zeros((b, t + most + 1, dc.block - 1), bool)
    for i, n in enumerate(starts):
        hits[i, n - 1:n - 1 + most] = found[i].cpu().numpy()
    return hits


def accepted(hits_of, items, sequences, starts, tokens_per_pass, sums):
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    while order:
        count = max(1, tokens_per_pass // (len(sequences[order[min(len(order), 64) - 1]]) + BUCKET))
        group, order = order[:min(count, 64)], order[min(count, 64):]
        hits = hits_of([sequences[i] for i in group], [starts[i] for i in group])
        for h, i in zip(hits, group):
            emitted, full = rounds(h, starts[i] - 1, len(sequences[i]) - 1)
            total = sums[items[i]["task"]]
            total[0] += sum(emitted)
            total[1] += len(emitted)
            total[2] += sum(full)
            total[3] += len(full)


def acceptance_table(sums):
    """Tokens per round over whole answers, and over rounds that the answer's end did not cut."""
    rows = {k: v for k, v in sums.items() if v[1]}
    rows["all"] = [sum(v[j] for v in rows.values()) for j in range(4)]
    return {k: {"tokens_per_round": round(v[0] / max(v[1], 1), 3), "uncut": round(v[2] / max(v[3], 1), 3), "rounds": v[1]}
            for k, v in rows.items()}


def compared(lines, path):
    """Per task: questions, share of answers with the same words, share with the same verdict. `path`: of `baton eval --json`."""
    theirs, ours = defaultdict(list), defaultdict(list)
    for outcome in json.loads(path.read_text())["questions"]:
        theirs[outcome["task"]].append(outcome)
    for line in lines:
        ours[line["task"]].append(line)
    table = {}
    for task, found in ours.items():
        if len(theirs[task]) != len(found):
            continue
        same = verdicts = 0
        for line, outcome in zip(found, theirs[task]):
            reasoning, _, content = line["said"].partition("</think>")
            content = content.split("<tool_call>")[0]  # calls are judged, not compared word by word
            same += reasoning.strip() == outcome.get("reasoning", "").strip() and content.strip() == outcome.get("content", "").strip()
            verdicts += line["right"] == outcome.get("right")
        table[task] = [len(found), round(same / len(found), 4), round(verdicts / len(found), 4)]
    return table


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--drafter", type=Path)
    parser.add_argument("--sets", type=Path, default=testsets.FOLDER)
    parser.add_argument("--only", help="names of sets, with commas between")
    parser.add_argument("--take", type=int, help="at most this many questions of each task and length")
    parser.add_argument("--longest", type=int, default=1 << 30, help="leave longer prompts out (tokens)")
    parser.add_argument("--dense", action="store_true", help="attend to everything, whatever the indexer would choose")
    parser.add_argument("--no-drafts", action="store_true", help="answers only")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default=None, choices=["bfloat16", "float32"])
    parser.add_argument("--tokens-per-pass", type=int, default=None)
    parser.add_argument("--answers", type=Path, help="write question, answer and verdict of every item here, one JSON a line")
    parser.add_argument("--guesses", type=Path, help="what --answers wrote for a similar model: tried first, which saves passes")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path, help="what `baton eval --json` wrote about the same questions")
    a = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    dtype = getattr(torch, a.dtype or ("bfloat16" if a.device != "cpu" else "float32"))
    per_pass = a.tokens_per_pass or (1 << 16 if a.device != "cpu" else 1 << 12)
    model = Model(a.model, a.device, dtype)
    mode = DENSE if a.dense else CHOOSE
    encoder = Encoder()
    ends = set(json.loads((TOKENIZER / "generation_config.json").read_text())["eos_token_id"])

    items, taken = [], defaultdict(int)
    for path in sorted(a.sets.glob("*.jsonl")):
        if a.only and path.stem not in a.only.split(","):
            continue
        for item in testsets.load(path):
            item.setdefault("task", path.stem)
            key = item["task"], item.get("length")
            taken[key] += 1
            if a.take is None or taken[key] <= a.take:
                items.append(item)
    asked = [[*(text for text, _ in render.pieces(item)), "<|assistant|>", "<think>"] for item in items]
    prompts = [[i for text in texts for i in encoder.ids(text)] for texts in asked]
    keep = [i for i, p in enumerate(prompts) if len(p) <= a.longest]
    items, prompts = [items[i] for i in keep], [prompts[i] for i in keep]
    guesses = [[i for text in guess_text(item) if text for i in encoder.ids(text)] for item in items]
    limits = [LIMITS.get(item["task"], DEFAULT_LIMIT) for item in items]
    if a.guesses:
        known = {(x["task"], json.dumps(x["wanted"]), x["prompt_tokens"]): x["ids"] for x in map(json.loads, a.guesses.open())}
        guesses = [known.get((i["task"], json.dumps(i["answer"]), len(p)), g) for i, p, g in zip(items, prompts, guesses)]
    start = time.time()
    answers = greedy(model, prompts, guesses, limits, ends, mode, per_pass)

    verdicts = defaultdict(list)
    lines = []
    for item, prompt, answer in zip(items, prompts, answers):
        body = answer[:-1] if answer[-1] in ends else answer
        text = encoder.tokenizer.decode(body, skip_special_tokens=False)
        good = right(item, text)
        if good is not None:
            verdicts[item["task"]].append(good)
            for part in ("group", "length"):
                if part in item:
                    verdicts[f"{item['task']}/{item[part]}"].append(good)
        lines.append({"task": item["task"], "group": item.get("group"), "length": item.get("length"), "prompt_tokens": len(prompt),
                      "wanted": item["answer"], "said": text, "ids": answer, "right": good})
    results = {"model": a.model.name, "attention": "dense" if a.dense else "sparse", "dtype": str(dtype).removeprefix("torch."),
               "right": {k: [round(sum(v) / len(v), 4), len(v)] for k, v in sorted(verdicts.items())}}
    sequences = [np.array(p + x, np.int64) for p, x in zip(prompts, answers)]
    starts = [len(p) for p in prompts]
    if model.c.mtp and not a.no_drafts:
        sums = defaultdict(lambda: [0, 0, 0, 0])
        accepted(lambda s, _: mtp_hits(model, s, mode), items, sequences, starts, per_pass // 8, sums)
        results["mtp"] = acceptance_table(sums)
    if a.drafter:
        dc, weights = load_drafter(a.drafter)
        weights = {n: x.to(a.device, dtype) for n, x in weights.items()}
        sums = defaultdict(lambda: [0, 0, 0, 0])
        accepted(lambda s, n: drafter_hits(model, weights, dc, s, n, mode), items, sequences, starts, per_pass // 8, sums)
        results["drafter"] = acceptance_table(sums)
    if a.against:
        results["against"] = compared(lines, a.against)
    results["seconds"] = round(time.time() - start, 1)
    if a.answers:
        a.answers.write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines))
    text = json.dumps(results, indent=1)
    print(text)
    if a.out:
        a.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
