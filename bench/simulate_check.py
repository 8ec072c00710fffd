#!/usr/bin/env python3
"""How far `baton simulate --cluster` is off: a server of the small model is measured under several loads, the costs of its cycles are
fitted to all but one of them, and that one is predicted.

    bench/simulate_check.py --baton build/release/bin/baton [--rounds 5] [--threads 1] [--json measured.json]
    bench/simulate_check.py --baton build/release/bin/baton --measured measured.json

The checkpoint is that of cpu_peers.py (random BF16 weights). Loads take turns in several rounds, and of each the fastest counts: others
on the machine only ever make it slower. The named ones are those of `bench serve --workload`, with fewer requests: a short run
meets a quiet moment more easily.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import cpu_peers
import server_peers

SEQUENCES, CHUNK, SNAPSHOTS, TOKENS = 8, 512, 64, 65536


def random(tokens, answer, prompts, at_once):
    return ["--dataset-name", "random", "--random-input-len", str(tokens), "--random-output-len", str(answer),
            "--num-prompts", str(prompts), "--max-concurrency", str(at_once)]


LOADS = {
    "256 + 64, one at once": random(256, 64, 4, 1),
    "256 + 64, 4 at once": random(256, 64, 12, 4),
    "64 + 128, 8 at once": random(64, 128, 16, 8),
    "small-prefill": ["--workload", "small-prefill", "--num-prompts", "4"],
    "small-decode": ["--workload", "small-decode", "--num-prompts", "16"],
    "small-3p1d-0": ["--workload", "small-3p1d-0", "--num-prompts", "8"],
    "small-3p1d-93.75": ["--workload", "small-3p1d-93.75", "--num-prompts", "16"],
    "small-3p1d-50": ["--workload", "small-3p1d-50", "--num-prompts", "8"],  # the last one is held out
}


def flush(port):
    """The last request of the run before may not have left the server yet: it says so, and is asked again."""
    for _ in range(600):
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/flush_cache", method="POST"), timeout=60).close()
            return
        except urllib.error.HTTPError as e:
            if e.code != 409:
                raise
        time.sleep(0.1)
    sys.exit("simulate_check: the server does not come to rest")


def measure(a, work):
    model = os.path.join(work, "model")
    cpu_peers.run([a.baton, "synth", "--config", cpu_peers.CONFIG, "--seed", "1", "--format", "bf16", model])
    cpu_peers.write_tokenizer(model)
    command = [a.baton, "serve", "--model", model, "--port", str(a.port), "--threads", str(a.threads),
               "--max-num-seqs", str(SEQUENCES), "--max-num-batched-tokens", str(CHUNK), "--snapshots", str(SNAPSHOTS),
               "--pool-tokens", str(TOKENS), "--max-model-len", "4096", "--no-log-requests"]
    rounds = {name: [] for name in LOADS}
    server = server_peers.Server("baton", command, a.port, os.path.join(work, "log"))
    try:
        server.pin(a.threads)
        for round_ in range(a.rounds):
            for name, flags in LOADS.items():
                out = os.path.join(work, "run.json")
                flush(a.port)
                cpu_peers.run([a.baton, "bench", "serve", "--port", str(a.port), "--vocab-size", "12000", "--seed",
                               str(100 * round_ + 1), *flags, "--json", out])
                run = json.loads(pathlib.Path(out).read_text(encoding="utf-8"))
                run["label"] = name
                rounds[name].append(run)
                print(f"round {round_ + 1}  {name:24} {run['output_throughput']:8.1f} tokens/s  TTFT {run['mean_ttft_ms']:8.1f} ms  "
                      f"TPOT {run['mean_tpot_ms']:7.2f} ms", flush=True)
    finally:
        server.stop()
    return [max(runs, key=lambda r: r["output_throughput"]) for runs in rounds.values()]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--baton", required=True)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--port", type=int, default=18081)
    p.add_argument("--measured", help="do not measure: the file of --json")
    p.add_argument("--json", help="write what was measured to this file")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as work:
        measured = a.measured
        if measured is None:
            measured = a.json or os.path.join(work, "measured.json")
            pathlib.Path(measured).write_text(json.dumps({"runs": measure(a, work)}) + "\n", encoding="utf-8")
        command = [a.baton, "simulate", "--cluster", "--calibrate", measured, "--max-num-seqs", str(SEQUENCES), "--max-num-batched-tokens",
                   str(CHUNK), "--snapshots", str(SNAPSHOTS), "--snapshot-tokens", "64", "--pages", str(TOKENS // 64)]
        sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
