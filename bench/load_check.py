#!/usr/bin/env python3
"""Checks the load generator from outside: its figures beside the packets of the same run, and beside a client in Python.

bench/load_check.py [--streams 8] [--requests 64] [--tokens 64] [--pace-us 4000]   starts scripted_server; the packets need root and tcpdump
bench/load_check.py --speed [--streams 400] [--tokens 400]                        pieces per second, and processor time of a piece
bench/load_check.py --spread                                                      three runs of one load, and how far they differ

Nothing is shared with the program: packets are read here from tcpdump's file, HTTP and event streams are parsed here.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATON = os.environ.get("BATON_PROGRAM", str(ROOT / "build/release/bin/baton"))
SCRIPTED = os.environ.get("BATON_SCRIPTED_SERVER", str(ROOT / "build/release/bin/scripted_server"))


def start_server(folder, a):
    subprocess.run([sys.executable, str(ROOT / "tests/server/compose_model.py"), folder], check=True)
    process = subprocess.Popen([SCRIPTED, folder, str(a.pace_us), "--port", "0", "--max-num-seqs", str(a.streams),
                                "--log-requests", "false"],
                               stderr=subprocess.PIPE, text=True)
    port = next(json.loads(line)["port"] for line in process.stderr if '"ready"' in line)
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process, port


def bench(a, port, *more):
    """The generator's own JSON. Prompts are letters, which the scripted model writes back, one a piece."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [BATON, "bench", "serve", "--port", str(port), "--random-input-len", str(a.tokens), "--random-output-len", str(a.tokens),
                   "--first-token-id", "97", "--vocab-size", "26", "--num-prompts", str(a.requests), "--max-concurrency", str(a.streams),
                   "--save-detailed", "--json", out.name, *more]
        print("$", *command)
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return json.loads(pathlib.Path(out.name).read_text())


def packets_of(path):
    """(time, source port, destination port, sequence, payload) of TCP over IPv4 in a pcap file with nanoseconds."""
    data = pathlib.Path(path).read_bytes()
    magic, link = struct.unpack_from("<I", data)[0], struct.unpack_from("<I", data, 20)[0]
    scale = {0xA1B23C4D: 1e-9, 0xA1B2C3D4: 1e-6}[magic]
    skip = {1: 14, 113: 16, 276: 20}[link]
    at = 24
    while at + 16 <= len(data):
        seconds, fraction, kept, _ = struct.unpack_from("<IIII", data, at)
        packet = data[at + 16 + skip:at + 16 + kept]
        at += 16 + kept
        header = (packet[0] & 15) * 4
        length = struct.unpack_from(">H", packet, 2)[0] or len(packet)
        source, target, sequence = struct.unpack_from(">HHI", packet, header)
        payload = packet[header + (packet[header + 12] >> 4) * 4:length]
        if payload:
            yield seconds + fraction * scale, source, target, sequence, payload


def requests_of(path, port):
    """What the packets show: for each request, when its first byte was sent and when each event with text had arrived."""
    streams = collections.defaultdict(list)
    for when, source, target, sequence, payload in packets_of(path):
        if source == port:
            streams[target].append((when, "in", sequence, payload))
        elif target == port:
            streams[source].append((when, "out", sequence, payload))
    found = []
    for packets in streams.values():
        current, seen, buffer = None, set(), b""
        for when, direction, sequence, payload in packets:
            if (direction, sequence) in seen:
                continue  # sent again
            seen.add((direction, sequence))
            if direction == "out":
                if payload.startswith(b"POST "):
                    if b"/completions" in payload[:60]:
                        current, buffer = {"sent": when, "pieces": []}, b""
                        found.append(current)
                    else:
                        current = None
                continue
            if current is None:
                continue
            buffer += payload
            while b"\n\n" in buffer:
                event, buffer = buffer.split(b"\n\n", 1)
                if re.search(rb'"text": ?"[^"]', event):
                    current["pieces"].append(when)
    return sorted((r for r in found if r["pieces"]), key=lambda r: r["sent"])


def quantile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def figures(requests, tokens):
    ttft = [1e3 * (r["pieces"][0] - r["sent"]) for r in requests]
    itl = [1e3 * (b - a) for r in requests for a, b in zip(r["pieces"], r["pieces"][1:])]
    tpot = [1e3 * (r["pieces"][-1] - r["pieces"][0]) / (tokens - 1) for r in requests if len(r["pieces"]) > 1]
    e2e = [1e3 * (r["pieces"][-1] - r["sent"]) for r in requests]
    return {name: {"mean": sum(x) / len(x), **{f"p{p}": quantile(x, p / 100) for p in (50, 90, 99)}}
            for name, x in (("ttft", ttft), ("itl", itl), ("tpot", tpot), ("e2el", e2e))}


def own_requests(report, tokens):
    """The report's requests in the same form; its figures have to follow from them."""
    requests = []
    for start, ttft, sent, gaps in zip(report["start_times"], report["ttfts"], report["sent_times"], report["itls"]):
        pieces = [start + ttft]
        for gap in gaps:
            pieces.append(pieces[-1] + gap)
        requests.append({"intended": start, "sent": sent, "pieces": pieces})
    for key, row in figures([{**r, "sent": r["intended"]} for r in requests], tokens).items():
        for name, value in row.items():
            if abs(value - report[f"{name}_{key}_ms"]) > 1e-6:
                raise SystemExit(f"the report's {name}_{key}_ms is {report[f'{name}_{key}_ms']}, its requests say {value}")
    return sorted(requests, key=lambda r: r["sent"])


def table(name, theirs, ours):
    print(f"{name:<34}{'mean':>9}{'p50':>9}{'p90':>9}{'p99':>9}   ms")
    worst = 0
    for key, label in (("ttft", "TTFT"), ("itl", "ITL"), ("tpot", "TPOT"), ("e2el", "E2E")):
        for who, row in (("outside", theirs[key]), ("baton", ours[key])):
            print(f"  {label + ', ' + who:<32}" + "".join(f"{v:>9.3f}" for v in row.values()))
        worst = max(worst, *(abs(x - ours[key][p]) for p, x in theirs[key].items()))
    print(f"  largest difference: {worst:.3f} ms")
    return worst


def check_packets(a, port):
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        dump = subprocess.Popen(["tcpdump", "-i", "lo", "-w", file.name, "-s", "0", "-B", "65536", "--time-stamp-precision=nano", "-U",
                                 f"tcp port {port}"], stderr=subprocess.PIPE, text=True)
        for line in dump.stderr:
            if "listening" in line:
                break
        time.sleep(0.5)
        ours = bench(a, port, "--num-warmups", "0")
        time.sleep(1)
        dump.send_signal(signal.SIGINT)
        print(dump.stderr.read().strip().replace("\n", ", "))
        dump.wait()
        seen = requests_of(file.name, port)
    if len(seen) != len(ours["ttfts"]):
        raise SystemExit(f"{len(seen)} requests in the packets, {len(ours['ttfts'])} in the report")
    own = own_requests(ours, a.tokens)
    worst = table(f"packets of {len(seen)} requests, since sent", figures(seen, a.tokens), figures(own, a.tokens))
    # Request by request, in the order of their first bytes.
    first = [abs((r["pieces"][0] - r["sent"]) - (o["pieces"][0] - o["sent"])) * 1e3 for r, o in zip(seen, own)]
    last = [abs((r["pieces"][-1] - r["sent"]) - (o["pieces"][-1] - o["sent"])) * 1e3 for r, o in zip(seen, own)]
    print(f"  request by request: TTFT differs by {max(first):.3f} ms at most ({quantile(first, 0.5):.3f} median), E2E "
          f"by {max(last):.3f} ms")
    return worst


def check_client(a, port):
    """The same load by threads with blocking sockets."""
    ours = bench(a, port)
    body = json.dumps({"model": "scripted", "prompt": [97 + i % 26 for i in range(a.tokens)], "max_tokens": a.tokens, "stream": True,
                       "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    left, lock, found = [a.requests], threading.Lock(), []

    def work():
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            with lock:
                if left[0] == 0:
                    return
                left[0] -= 1
            record = {"sent": time.perf_counter(), "pieces": []}
            connection.sendall(head + body)
            buffer = b""
            while not buffer.endswith(b"0\r\n\r\n"):
                buffer += connection.recv(65536)
                now = time.perf_counter()
                while b"\n\n" in buffer:
                    event, buffer = buffer.split(b"\n\n", 1)
                    if re.search(rb'"text": ?"[^"]', event):
                        record["pieces"].append(now)
            with lock:
                found.append(record)

    threads = [threading.Thread(target=work) for _ in range(a.streams)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return table(f"a Python client, {len(found)} requests", figures(found, a.tokens),
                 figures(own_requests(ours, a.tokens), a.tokens))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--pace-us", type=int)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--spread", action="store_true")
    a = parser.parse_args()
    for name, usual, fast in (("streams", 8, 400), ("requests", 64, 800), ("tokens", 64, 400), ("pace_us", 4000, 0)):
        if getattr(a, name) is None:
            setattr(a, name, fast if a.speed else usual)
    with tempfile.TemporaryDirectory() as folder:
        server, port = start_server(folder, a)
        try:
            if a.speed:
                ours = bench(a, port)
                pieces = sum(len(gaps) + 1 for gaps in ours["itls"])
                print(f"{pieces} pieces in {ours['duration']:.2f} s: {pieces / ours['duration']:.0f} a second; "
                      f"{1e6 * ours['processor_seconds'] / pieces:.2f} us of processor time each, so "
                      f"{pieces / ours['processor_seconds']:.0f} a second on one core")
            elif a.spread:
                bench(a, port, "--repeats", "3")
            else:
                check_packets(a, port)
                check_client(a, port)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
