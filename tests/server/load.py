#!/usr/bin/env python3
"""Many streams at once against scripted_server: processor time of the server per chunk, and whether any stream stalls.

tests/server/load.py [--streams 1000] [--tokens 200] [--pace-us 40000]   needs only Python; BATON_SCRIPTED_SERVER names the program
tests/server/load.py --idle 10000     what so many idle connections take, in memory and in time, and an answer beside them
"""
import argparse
import json
import os
import pathlib
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--pace-us", type=int, default=40000)
    parser.add_argument("--flag", action="append", default=[], help="a flag of the server, as name=value")
    parser.add_argument("--idle", type=int, default=0, help="idle connections in place of streams")
    a = parser.parse_args()
    program = os.environ.get("BATON_SCRIPTED_SERVER", str(HERE.parents[1] / "build/release/bin/scripted_server"))
    with tempfile.TemporaryDirectory() as model:
        subprocess.run([sys.executable, str(HERE / "compose_model.py"), model], check=True)
        flags = [f for pair in a.flag for f in ("--" + pair.split("=")[0], pair.split("=")[1])]
        pace = str(0 if a.idle else a.pace_us)
        server = subprocess.Popen([program, model, pace, "--port", "0", "--max-num-seqs", str(a.streams), "--log-level", "info",
                                   "--log-requests", "false", *flags], stderr=subprocess.PIPE, text=True)
        port = next(json.loads(line)["port"] for line in server.stderr if '"ready"' in line)
        try:
            (measure_idle if a.idle else measure)(a, server.pid, port)
        finally:
            server.terminate()
            server.wait()


def measure_idle(a, pid, port):
    def resident():
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def ask():
        """Seconds until a chat has been answered."""
        body = json.dumps({"messages": [{"role": "user", "content": "a</think>b"}], "max_tokens": 9}).encode()
        begin = time.monotonic()
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
            s.sendall(body)
            answer = b"".join(iter(lambda: s.recv(1 << 16), b""))
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return time.monotonic() - begin
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(a.idle + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    ask()
    before, alone = resident(), min(ask() for _ in range(5))
    idle = []
    for _ in range(a.idle):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        idle.append(s)
    assert all(s.recv(1000).startswith(b"HTTP/1.1 200 ") for s in idle)
    cpu, begin = processor_seconds(pid), time.monotonic()
    time.sleep(10)
    cpu = (processor_seconds(pid) - cpu) / (time.monotonic() - begin)
    beside = min(ask() for _ in range(5))
    print(f"{a.idle} idle connections: {(resident() - before) / a.idle / 1024:.1f} KB each in the process, {cpu * 100:.1f} % of a core; "
          f"a chat takes {beside * 1e3:.1f} ms beside them, {alone * 1e3:.1f} ms without")


def measure(a, pid, port):
    text = f"#repeat {a.tokens // 4 + 1} abcd"
    messages = [{"role": "user", "content": text}]
    body = json.dumps({"model": "scripted", "stream": True, "max_tokens": a.tokens, "messages": messages}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    selector = selectors.DefaultSelector()
    begin, chunks, received, open_streams, longest = time.monotonic(), 0, 0, 0, 0.0
    cpu_before = processor_seconds(pid)
    last = {}
    for _ in range(a.streams):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(head + body)
        s.setblocking(False)
        selector.register(s, selectors.EVENT_READ)
        open_streams += 1
    connected = time.monotonic()
    complete = 0
    while open_streams:
        for key, _ in selector.select(10):
            data = key.fileobj.recv(1 << 16)
            now = time.monotonic()
            fd = key.fd
            if fd in last:
                longest = max(longest, now - last[fd])
            last[fd] = now
            received += len(data)
            chunks += data.count(b"data: ")
            done = b"[DONE]" in data
            complete += done
            if done or not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                open_streams -= 1
    seconds = time.monotonic() - begin
    cpu = processor_seconds(pid) - cpu_before
    print(f"{a.streams} streams of {a.tokens} tokens: {complete} complete, {chunks} chunks, {received / 1e6:.1f} MB in {seconds:.2f} s "
          f"(connected after {connected - begin:.2f} s)")
    print(f"server: {cpu:.2f} s of processor time, {cpu / chunks * 1e6:.1f} us a chunk; longest pause of a stream {longest * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
