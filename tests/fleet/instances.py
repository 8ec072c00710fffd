"""Prefill and decode instances as processes, with a small checkpoint, and what they answer."""
import json
import os
import pathlib
import random
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "router"))
import fleet  # noqa: E402
import harness  # noqa: E402


def backends():
    """Transports to test with, of those in BATON_TRANSFER: copies between processes, and NIXL where scripts/setup has put it."""
    wanted = os.environ.get("BATON_TRANSFER", "same-host,nixl").split(",")
    found = ["same-host"] if fleet.may_write_into_others() else []
    if (harness.ROOT / "build/nixl").is_dir() or os.environ.get("BATON_NIXL"):
        found.append("nixl")
    found = [name for name in found if name in wanted]
    if not found:
        print("neither may processes write into each other here, nor is NIXL installed (scripts/setup nixl puts it into build/nixl)")
        sys.exit(77)
    if found == ["same-host"] and "nixl" in wanted:
        print("NIXL is not installed (scripts/setup nixl puts it into build/nixl): tested with copies between processes alone")
    return found


BACKENDS = backends()


def model_of(checkpoint, folder):
    """A folder to serve another checkpoint from."""
    compose = [sys.executable, str(harness.ROOT / "tests/server/compose_model.py"), folder]
    subprocess.run([*compose, "--checkpoint", str(harness.ROOT / "tests/data/golden" / checkpoint)], check=True)
    return folder


def prompts(count, seed):
    """Prompts of bytes, of which many share their beginnings; some end at a page's edge."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    stems = [[chance.randrange(32, 127) for _ in range(n)] for n in (64, 200, 448)]
    out = []
    for i in range(count):
        own = [chance.randrange(32, 127) for _ in range(chance.choice([1, 3, 64, 65, 100, 190]))]
        out.append(chance.choice(stems)[:chance.choice([64, 128, 500])] + own if i % 4 else own)
    return out


def request(prompt, seed=None, tokens=12, **options):
    """A request whose answer shows every bit: the log-probabilities of what might have come, too."""
    return {"prompt": prompt, "max_tokens": tokens, "logprobs": 3, "ignore_eos": True,
            **({"temperature": 0} if seed is None else {"temperature": 0.9, "top_p": 0.95, "seed": seed}), **options}


def content(answer):
    """What of an answer has to be the same wherever it comes from."""
    if answer.status != 200 or answer.broken:
        raise AssertionError(f"{answer.status} {answer.broken} {answer.body[-500:]}")
    return answer.json()["choices"]


class ApartTest(fleet.FleetTest):
    """`flags` go to every instance."""

    flags = ("--threads=1", "--max-num-seqs=4", "--no-web-page", f"--transfer-backend={BACKENDS[0]}")

    def serve(self, *flags, port=None, model=None, wait=True):
        port = port or fleet.free_port()
        command = [harness.BATON, "serve", "--model", model or harness.MODEL, f"--port={port}", "--served-model-name=small", *self.flags]
        server = harness.Server(*flags, command=command)
        self.addCleanup(server.kill)
        return server

    def prefill(self, *flags, **options):
        return self.serve("--role=prefill", *flags, **options)

    def decode(self, *prefills, flags=(), **options):
        urls = [f"--prefill=http://127.0.0.1:{p if isinstance(p, int) else p.port}" for p in prefills]
        return self.serve("--role=decode", *urls, *flags, **options)

    def info(self, server):
        with urllib.request.urlopen(f"{server.url}/server_info", timeout=10) as answer:
            return json.loads(answer.read())["fleet"]

    def there(self, decode, count):
        """So many prefill instances may be ordered from."""
        self.wait_for(lambda: decode.metrics()['baton_fleet_peers{state="prefill_ready"}'] == count,
                      f"not {count} there: {self.info(decode)} {decode.log[-5:]}")

    def complete(self, server, body, **options):
        return fleet.ask(server.port, body, path="/v1/completions", **options)

    def begin(self, server, body, **options):
        return fleet.Client(server.port, body, path="/v1/completions", **options)

    def at_rest(self, *servers):
        """Nothing is held anywhere: no order, no job, no page, no quarantine."""
        def left(server):
            m = server.metrics()
            names = ["baton_requests_open", "baton_sequences_running", "baton_sequences_waiting", 'baton_orders_now{state="waiting"}',
                     'baton_orders_now{state="open"}', 'baton_orders_now{state="quarantined"}', "baton_quarantined_pages",
                     'baton_prefill_jobs_now{state="active"}', "baton_transfer_waiting", 'baton_pages{state="held"}',
                     'baton_slots{state="held"}']
            return {name: m[name] for name in names if m[name] != 0}
        for server in servers:
            self.wait_for(lambda server=server: not left(server), f"something is left: {server.port}", 40)
            self.assertEqual(left(server), {})
