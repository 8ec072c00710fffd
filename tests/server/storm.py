#!/usr/bin/env python3
"""A storm over a server: hundreds of clients of every kind at once, good, impatient, slow, broken and hostile, and SIGTERM in the middle.

tests/server/storm.py [--seconds 30] [--clients 300] [--rounds 2] [--seed N] [--real]     needs only Python

What good clients get has to be what they got while nobody else asked, or an error that says why: never less, never anything else. After
each round the server has to be empty, and to end as it should: drained in even rounds, at a second SIGTERM in odd ones. A line of a
sanitizer in its log is a failure. `--real`: `baton serve` with the small checkpoint in place of the scripted model. BATON_PROGRAM and
BATON_SCRIPTED_SERVER name the programs; with those of build/tsan this is the thread sanitizer's test of the whole server (`make storm`).
"""
import argparse
import asyncio
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build/release/bin"
QUESTIONS = 24
FORM = {"type": "json_schema", "json_schema": {"name": "f", "schema": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}}}


class Wrong(Exception):
    """The server did what it must not."""


class Answer:
    def __init__(self, status, headers, reader):
        self.status, self.headers, self.reader = status, headers, reader

    async def chunks(self):
        """The body by its framing; an end before its end is IncompleteReadError."""
        if "content-length" in self.headers:
            yield await self.reader.readexactly(int(self.headers["content-length"]))
            return
        while True:
            size = int((await self.reader.readuntil(b"\r\n")).strip() or b"0", 16)
            data = (await self.reader.readexactly(size + 2))[:-2]
            if not size:
                return
            yield data

    async def body(self):
        return b"".join([c async for c in self.chunks()])

    async def events(self):
        """The data of each event."""
        rest = b""
        async for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n\n")
            for event in whole:
                for line in event.split(b"\n"):
                    if line.startswith(b"data: "):
                        yield line[6:]


class Storm:
    def __init__(self, arguments, seed):
        self.a, self.rng = arguments, random.Random(seed)
        self.going = True    # clients begin new things
        self.ending = False  # the server has been told to end
        self.counts = collections.Counter()
        self.wrong = []
        self.known = {}

    # ------------------------------------------------------------------------------------------------------------------- connections
    @contextlib.asynccontextmanager
    async def connection(self, buffer=None):
        s = socket.socket()
        if buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        s.setblocking(False)
        await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=s, limit=1 << 22)
        try:
            yield reader, writer
        finally:
            if self.rng.random() < 0.3:  # as the system does for a killed process that had not read everything
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort() if self.rng.random() < 0.5 else writer.close()

    @staticmethod
    def request(path, body=None, headers=""):
        data = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        return f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(data)}\r\n{headers}\r\n".encode() + data

    @staticmethod
    async def answer(reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if ": " in line)}
        return Answer(int(head[0].split()[1]), headers, reader)

    async def ask(self, path, body=None, headers=""):
        async with self.connection() as (reader, writer):
            writer.write(self.request(path, body, headers))
            answer = await self.answer(reader)
            return answer.status, await answer.body()

    # ------------------------------------------------------------------------------------------------------------------ good clients
    @staticmethod
    def question(k):
        rng = random.Random(k)
        text = "".join(rng.choice(["é", "日", "word ", "a", "{", "\n", "🙂"]) for _ in range(rng.randrange(1, 60)))
        text = "#repeat %d " % rng.randrange(1, 6) + "r</think>" + text
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": rng.choice([1, 20, 60, 120]), "temperature": 0}
        if k % 4 == 1:
            body |= {"temperature": 1, "seed": k}
        if k % 8 == 2:
            body |= {"response_format": FORM, "max_tokens": 60}
        if k % 6 == 3:
            body["stop"] = ["word", "日"]
        return body

    @staticmethod
    def essence(choice, message, usage):
        return (message.get("reasoning_content") or "", message.get("content") or "", choice["finish_reason"], usage["completion_tokens"])

    def check(self, k, got):
        expected = self.known.setdefault(k, got)
        if got != expected:
            raise Wrong(f"question {k} was answered with {got}, alone with {expected}")

    def refused(self, status, body):
        """An answer that is none, with a reason that may be."""
        if status == 501 and not os.path.isdir(os.environ.get("BATON_XGRAMMAR", "")):
            self.counts["without the library of forms"] += 1
            return
        if status not in (408, 429, 503) or (status == 503 and not self.ending and b"Answers" not in body and b"busy" not in body):
            raise Wrong(f"status {status}: {body[:300]}")
        self.counts[f"refused {status}"] += 1

    async def whole(self, k=None):
        k = self.rng.randrange(QUESTIONS) if k is None else k
        status, data = await self.ask("/v1/chat/completions", self.question(k))
        if status != 200:
            return self.refused(status, data)
        answer = json.loads(data)
        self.check(k, self.essence(answer["choices"][0], answer["choices"][0]["message"], answer["usage"]))

    async def stream(self):
        k = self.rng.randrange(QUESTIONS)
        body = {**self.question(k), "stream": True, "stream_options": {"include_usage": True}}
        async with self.connection() as (reader, writer):
            for _ in range(self.rng.randrange(1, 4)):  # one after the other on one connection
                writer.write(self.request("/v1/chat/completions", body))
                answer = await self.answer(reader)
                if answer.status != 200:
                    return self.refused(answer.status, await answer.body())
                message, choice, usage, done = collections.defaultdict(str), None, None, False
                async for event in answer.events():
                    if event == b"[DONE]":
                        done = True
                        continue
                    event = json.loads(event)
                    if "error" in event:
                        if not self.ending:
                            raise Wrong(f"a stream failed: {event}")
                        self.counts["streams cut at the end"] += 1
                        return
                    usage = event.get("usage") or usage
                    for c in event["choices"]:
                        choice = c if c["finish_reason"] else choice
                        for name, text in c["delta"].items():
                            message[name] += text or "" if isinstance(text, str) else ""
                if not done or not choice or not usage:
                    raise Wrong("a stream ended without its end")
                self.check(k, self.essence(choice, message, usage))

    async def others(self):
        """Every other endpoint."""
        text = "r</think>some words 日"
        chat = {"messages": [{"role": "user", "content": text}], "max_tokens": 20}
        path, body = self.rng.choice([
            ("/v1/models", None), ("/health", None), ("/metrics", None), ("/server_info", None), ("/", None),
            ("/tokenize", {"prompt": text}), ("/render", chat), ("/v1/messages/count_tokens", chat),
            ("/v1/messages", chat), ("/v1/messages", {**chat, "stream": True}),
            ("/v1/responses", {"input": text, "max_output_tokens": 20}),
            ("/v1/responses", {"input": text, "stream": True, "max_output_tokens": 20}),
            ("/v1/completions", {"prompt": [text, "another"], "n": 2, "max_tokens": 9, "stream": self.rng.random() < 0.5}),
            ("/v1/completions", {"prompt": text, "echo": True, "logprobs": 2, "max_tokens": 5}),
            ("/generate", {"text": text, "sampling_params": {"max_new_tokens": 9, "n": 3}}),
            ("/v1/chat/completions", {**chat, "n": 4, "logprobs": True, "top_logprobs": 5, "stream": True}),
            ("/flush_cache", {})])
        status, data = await self.ask(path, body, self.rng.choice(["", "x-timing: 1\r\n", "Connection: close\r\n"]))
        if status != 200 and not (path == "/flush_cache" and status in (400, 409)):
            self.refused(status, data)

    async def hurried(self):
        body = {"messages": [{"role": "user", "content": "#repeat 300 abc"}], "max_tokens": 900}
        status, data = await self.ask("/v1/chat/completions", body, f"x-request-timeout-ms: {self.rng.randrange(1, 300)}\r\n")
        if status != 200:
            self.refused(status, data)

    # ------------------------------------------------------------------------------------------------------------------- bad clients
    def long(self, **more):
        chat = {"messages": [{"role": "user", "content": "#repeat 2000 abcd"}], "max_tokens": 6000}
        return self.request("/v1/chat/completions", {**chat, **more})

    @staticmethod
    async def sip(reader, size):
        """What comes in a moment; None: nothing."""
        with contextlib.suppress(asyncio.TimeoutError):
            return await asyncio.wait_for(reader.read(size), 0.3)

    async def leaver(self):
        """Goes at any moment."""
        request = self.long(stream=self.rng.random() < 0.7, n=self.rng.choice([1, 1, 3]))
        async with self.connection() as (reader, writer):
            writer.write(request[:self.rng.randrange(1, len(request))] if self.rng.random() < 0.3 else request)
            await asyncio.sleep(self.rng.random() ** 3)
            for _ in range(self.rng.randrange(4)):
                await self.sip(reader, self.rng.randrange(1, 3000))

    async def slow(self):
        """Reads hardly or not at all."""
        async with self.connection(buffer=4096) as (reader, writer):
            reader._limit = 1024  # what asyncio itself reads ahead
            writer.write(self.long(stream=self.rng.random() < 0.7, logprobs=True, top_logprobs=20))
            for _ in range(self.rng.randrange(60)):
                await asyncio.sleep(0.1)
                if not self.going:
                    return
                if self.rng.random() < 0.3 and await self.sip(reader, 100) == b"":
                    return

    async def dribbler(self):
        """A head, byte by byte."""
        async with self.connection() as (_, writer):
            for byte in self.long()[:self.rng.randrange(5, 100)]:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.05)
                if not self.going:
                    return

    async def babbler(self):
        """No HTTP, or no request."""
        texts = [b"\0" * 2000, b"GET / HTTP/9.9\r\n\r\n",
                 b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                 b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", self.request("/v1/chat/completions", {"messages": [[[]]] * 50}),
                 self.request("/v1/completions", {"prompt": [1 << 40]}), self.request("/nowhere", {}), self.request("/v1/models", {}),
                 self.request("/v1/chat/completions", None, "Expect: 100-continue\r\n"), bytes(self.rng.randrange(256) for _ in range(300))]
        async with self.connection() as (reader, writer):
            writer.write(self.rng.choice(texts))
            writer.write_eof()
            data = await reader.read(100)
            if b" 200 " in data or b" 500 " in data:
                raise Wrong(f"nonsense was answered with {data}")

    async def killed(self):
        """A process with streams of its own, killed."""
        code = ("import socket,sys,time\n"
                f"s=[socket.create_connection(('127.0.0.1',{self.port})) for _ in range(8)]\n"
                f"[x.sendall({self.long(stream=True)!r}) for x in s]\nprint(flush=True)\ntime.sleep(60)\n")
        process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", code, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            await process.stdout.readline()
            await asyncio.sleep(self.rng.random())
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    # --------------------------------------------------------------------------------------------------------------------- the storm
    KINDS = {"stream": 30, "whole": 20, "others": 15, "hurried": 5, "leaver": 20, "slow": 6, "dribbler": 2, "babbler": 6, "killed": 1}

    async def client(self):
        while self.going:
            kind = self.rng.choices(list(self.KINDS), self.KINDS.values())[0]
            try:
                await asyncio.wait_for(getattr(self, kind)(), 600)
                self.counts[kind] += 1
            except asyncio.TimeoutError:  # before OSError, of which it is one since Python 3.11
                self.wrong.append(f"{kind}: no end after 600 s")
            except (OSError, asyncio.IncompleteReadError) as e:
                # Good clients are cut only when the server ends, and bad ones may be cut.
                if kind in ("stream", "whole", "others", "hurried") and not self.ending:
                    self.wrong.append(f"{kind}: {e!r}")
            except Wrong as e:
                self.wrong.append(f"{kind}: {e}")

    async def metrics(self):
        _, data = await self.ask("/metrics")
        rows = (line.rsplit(" ", 1) for line in data.decode().splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    async def wait_idle(self):
        gauges = ["baton_requests_open", "baton_sequences_running", "baton_sequences_waiting", "baton_answer_bytes", "baton_http_streams",
                  "baton_prepare_queue", "baton_engine_mail", 'baton_pages{state="held"}', 'baton_slots{state="held"}']
        deadline = time.monotonic() + 300
        while True:
            m = await self.metrics()
            held = {g: m[g] for g in gauges if m[g]}
            if not held:
                return
            if time.monotonic() > deadline:
                self.wrong.append(f"after all clients had gone: {held}")
                return
            await asyncio.sleep(0.1)

    async def learn(self):
        """What each question is answered with while nobody else asks."""
        for k in range(QUESTIONS):
            await self.whole(k)

    async def blow(self, server):
        """Clients for half of the time; they begin nothing new when it returns."""
        self.going = True
        clients = [asyncio.create_task(self.client()) for _ in range(self.a.clients)]
        for _ in range(8):
            await asyncio.sleep(self.a.seconds / 16)
            server.send_signal(signal.SIGHUP)
        self.going = False
        return asyncio.gather(*clients)

    async def round(self, log, server, cut):
        self.port = await ready_port(log, server)
        await self.learn()
        await (await self.blow(server))  # all that was begun ends by itself
        await self.wait_idle()
        clients = await self.blow(server)  # the server ends under them
        self.ending = True
        server.send_signal(signal.SIGTERM)
        if cut:
            await asyncio.sleep(0.2)
            server.send_signal(signal.SIGTERM)
        await clients


async def ready_port(log, server):
    while server.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if '"message":"ready"' in line.replace(" ", ""):
                return json.loads(line)["port"]
        await asyncio.sleep(0.05)
    sys.exit(f"storm: the server did not start: {log.read_text()[-2000:]}")


def command(a, model):
    if a.real:
        program = [os.environ.get("BATON_PROGRAM", BUILD / "baton"), "serve", "--model", model, "--threads", 2, "--pool-tokens", 32768,
                   "--no-log-requests"]
    else:
        program = [os.environ.get("BATON_SCRIPTED_SERVER", BUILD / "scripted_server"), model, 1000, "--log-requests", "false"]
    crowd = ["--port", 0, "--max-num-seqs", 24, "--max-queued-requests", a.clients // 2, "--max-stream-bytes", 65536,
             "--max-answer-bytes", 5000000, "--http-threads", 2, "--output-threads", 2, "--shutdown-timeout", 120]
    return [str(word) for word in program + crowd]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=30, help="of each round")
    p.add_argument("--clients", type=int, default=300)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seed", type=int, default=int(os.environ.get("BATON_SEED", time.time_ns() % 1000000)))
    p.add_argument("--real", action="store_true")
    a = p.parse_args()
    print(f"seed {a.seed}", flush=True)
    failed = False
    for number in range(a.rounds):
        storm, cut = Storm(a, a.seed + number), number % 2 == 1
        with tempfile.TemporaryDirectory() as folder:
            model, log = os.path.join(folder, "model"), pathlib.Path(folder, "log")
            subprocess.run([sys.executable, str(HERE / "compose_model.py"), model], check=True)
            with open(log, "w", encoding="utf-8") as f:
                server = subprocess.Popen(command(a, model), stderr=f)
            try:
                asyncio.run(storm.round(log, server, cut))
                code = server.wait(300)
            finally:
                server.kill()
            text = log.read_text(encoding="utf-8", errors="replace")
        if code not in ((0, 1) if cut else (0,)):
            storm.wrong.append(f"the server ended with {code}")
        if "Sanitizer" in text or "runtime error" in text:
            storm.wrong.append("the server's log: " + text[max(text.find("Sanitizer") - 100, 0):][:6000])
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(storm.counts.items()))
        print(f"round {number} ({'cut' if cut else 'drained'}): {counts}; {len(storm.wrong)} wrong", flush=True)
        for wrong in storm.wrong[:10]:
            print(f"  {wrong}")
        failed = failed or bool(storm.wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
