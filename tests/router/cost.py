#!/usr/bin/env python3
"""The router's processor time per request and per chunk of a stream, in front of scripted servers.

tests/router/cost.py [--instances 3] [--requests 5000] [--streams 300] [--tokens 200] [--pace-us 40000]   needs only Python
"""
import argparse
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/server"))
import load  # noqa: E402


def ready_port(process):
    return next(entry["port"] for entry in map(json.loads, process.stderr) if entry["message"] == "ready")


def requests(port, pid, count, connections=16):
    """Short whole answers, one after the other on each of some connections."""
    body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "a</think>b" + "x" * 2000}], "max_tokens": 1})
    wrong = []

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(count // connections):
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            response = connection.getresponse()
            if response.status != 200 or not response.read():
                wrong.append(response.status)
    before = load.processor_seconds(pid)
    threads = [threading.Thread(target=ask) for _ in range(connections)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    cpu = load.processor_seconds(pid) - before
    done = count // connections * connections
    print(f"{done} requests, {len(wrong)} not answered: {cpu:.2f} s of processor time, {cpu / done * 1e6:.0f} us a request")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--pace-us", type=int, default=40000)
    a = parser.parse_args()
    scripted = os.environ.get("BATON_SCRIPTED_SERVER", str(ROOT / "build/release/bin/scripted_server"))
    baton = os.environ.get("BATON_PROGRAM", str(ROOT / "build/release/bin/baton"))
    with tempfile.TemporaryDirectory() as model:
        subprocess.run([sys.executable, str(ROOT / "tests/server/compose_model.py"), model], check=True)
        started = []

        def start(*command):
            started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
            return started[-1], ready_port(started[-1])

        def fleet(pace_us):
            ports = [start(scripted, model, str(pace_us), "--port", "0", "--max-num-seqs", str(a.streams), "--log-requests", "false")[1]
                     for _ in range(a.instances)]
            process, port = start(baton, "router", "--port=0", "--no-log-requests", "--unified", *(f"http://127.0.0.1:{p}" for p in ports))
            connection = http.client.HTTPConnection("127.0.0.1", port)
            while True:
                connection.request("GET", "/readyz")
                response = connection.getresponse()
                response.read()
                if response.status == 200:
                    return port, process.pid
        try:
            requests(*fleet(0), a.requests)
            port, pid = fleet(a.pace_us)
            load.measure(a, pid, port)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
