#!/usr/bin/env python3
"""`baton serve` beside llama.cpp's llama-server on the CPU: one checkpoint, one machine, one load, in turns.

    bench/server_peers.py --baton build/release/bin/baton [--llama-server PATH --llama-source DIR] [--clients 1,4,16] [--share 0.8]

The checkpoint is that of cpu_peers.py (random BF16 weights). Prompts are token ids for /v1/completions, so that neither tokenizers nor chat
templates make a difference; answers are greedy, streamed, and of a fixed length (`ignore_eos`). Each client asks one thing after the other;
what prompts share has been asked before, as a system prompt has.
Both get the same number of threads, one to a core, and as many places as there are clients. Figures are medians of the rounds.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import cpu_peers


class Server:
    def __init__(self, name, command, port, log):
        self.name, self.port, self.log = name, port, log
        with open(log, "w", encoding="utf-8") as f:
            self.process = subprocess.Popen(command, stdout=f, stderr=f)
        deadline = time.monotonic() + 60
        while True:
            try:
                if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200:
                    return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"server_peers: {name} did not start:\n{pathlib.Path(log).read_text()[-2000:]}")
                time.sleep(0.1)

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def pin(self, threads):
        """The threads that compute, one to a core: on a busy machine two that wait for each other may otherwise end up on one."""
        def busy(task):
            return int((task / "schedstat").read_text().split()[0])
        tasks = sorted(pathlib.Path(f"/proc/{self.process.pid}/task").iterdir(), key=busy)
        for core, task in enumerate(tasks[-threads:]):
            os.sched_setaffinity(int(task.name), {sorted(os.sched_getaffinity(0))[core]})

    def stop(self):
        self.process.terminate()
        self.process.wait()


def ask(connection, ids, new_tokens):
    """Seconds to the first event and to the end, and the tokens of the answer."""
    body = {"prompt": ids, "max_tokens": new_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    begin = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {answer.read()[:300]}")
    first, tokens = None, 0
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        first = first or time.monotonic() - begin
        if b'"usage":{' in line:
            tokens = json.loads(line[6:])["usage"]["completion_tokens"]
    return first, time.monotonic() - begin, tokens


def load(server, clients, requests, prompt, new_tokens, share, seed):
    vocabulary = cpu_peers.text_config()["vocab_size"] - 16
    rng = random.Random(1)
    shared = [rng.randrange(256, vocabulary) for _ in range(int(prompt * share))]
    rng.seed(seed)

    def one_prompt():
        return shared + [rng.randrange(256, vocabulary) for _ in range(prompt - len(shared))]
    prompts = [[one_prompt() for _ in range(requests)] for _ in range(clients)]
    results, problems = [], []

    def client(mine):
        try:
            for ids in mine:
                # Of its own for each: llama-server closes a connection behind a stream without saying so in the head.
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
                results.append(ask(connection, ids, new_tokens))
                connection.close()
        except Exception as error:  # of any kind: it must not look like a fast run
            problems.append(error)
    threads = [threading.Thread(target=client, args=(mine,)) for mine in prompts]
    begin, cpu = time.monotonic(), server.processor_seconds()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seconds, cpu = time.monotonic() - begin, server.processor_seconds() - cpu
    short = [r for r in results if r[2] != new_tokens]
    if problems or short or len(results) != clients * requests:
        sys.exit(f"server_peers: {server.name}: {problems[:1]}, {len(short)} answers of another length")
    firsts = sorted(r[0] for r in results)
    tokens = sum(r[2] for r in results)
    return {"tokens_per_s": tokens / seconds, "requests_per_s": len(results) / seconds, "processor_ms_per_token": cpu / tokens * 1e3,
            "first_p50_ms": statistics.median(firsts) * 1e3, "first_p99_ms": firsts[int(len(firsts) * 0.99)] * 1e3}


def commands(a, model, gguf, clients):
    places = str(clients)
    context = a.prompt + a.answer + 64
    yield "baton", [a.baton, "serve", "--model", model, "--port", str(a.port), "--threads", str(a.threads), "--max-num-seqs", places,
                    "--no-log-requests"]
    if a.llama_server:
        threads = ["-t", str(a.threads), "-tb", str(a.threads)]
        yield "llama-server", [a.llama_server, "-m", gguf, "--port", str(a.port), *threads, "-np", places, "-c", str(context * clients)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--baton", required=True)
    p.add_argument("--llama-server")
    p.add_argument("--llama-source", help="the folder with its convert_hf_to_gguf.py")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--clients", default="1,4,16")
    p.add_argument("--requests", type=int, default=4, help="of each client")
    p.add_argument("--prompt", type=int, default=300)
    p.add_argument("--answer", type=int, default=100)
    p.add_argument("--share", type=float, default=0, help="of each prompt, the same for all")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--port", type=int, default=18080)
    p.add_argument("--json")
    a = p.parse_args()
    if bool(a.llama_server) != bool(a.llama_source):
        p.error("--llama-server and --llama-source go together")

    rows = []
    with tempfile.TemporaryDirectory() as work:
        model, gguf = os.path.join(work, "model"), os.path.join(work, "model.gguf")
        cpu_peers.run([a.baton, "synth", "--config", cpu_peers.CONFIG, "--seed", "1", "--format", "bf16", model])
        cpu_peers.write_tokenizer(model)
        if a.llama_server:
            cpu_peers.convert(a.llama_source, model, gguf)
        for clients in map(int, a.clients.split(",")):
            samples = {}
            for round_ in range(a.rounds):
                for name, command in commands(a, model, gguf, clients):
                    server = Server(name, command, a.port, os.path.join(work, "log"))
                    try:
                        load(server, 1, 1, 32, 2, 0, seed=98)
                        server.pin(a.threads)
                        load(server, 1, 4, a.prompt, 8, a.share, seed=99)  # warm; what is shared is known then
                        samples.setdefault(name, []).append(load(server, clients, a.requests, a.prompt, a.answer, a.share, seed=round_))
                    finally:
                        server.stop()
            for name, runs in samples.items():
                row = {"server": name, "clients": clients} | {k: statistics.median(r[k] for r in runs) for k in runs[0]}
                row["spread_tokens_per_s"] = [min(r["tokens_per_s"] for r in runs), max(r["tokens_per_s"] for r in runs)]
                rows.append(row)
                least, most = row["spread_tokens_per_s"]
                print(f"{clients:3} clients  {name:13} {row['tokens_per_s']:8.1f} tokens/s ({least:.1f} ... {most:.1f})  "
                      f"{row['requests_per_s']:6.2f} requests/s  first token p50 {row['first_p50_ms']:7.0f} ms, "
                      f"p99 {row['first_p99_ms']:7.0f} ms  {row['processor_ms_per_token']:.2f} ms of processor a token", flush=True)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({"rows": rows, "arguments": vars(a)}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
