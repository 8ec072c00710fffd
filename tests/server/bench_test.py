#!/usr/bin/env python3
"""baton bench serve against the scripted server: counts that the server confirms, both APIs, failures by kind, files, usage."""
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import harness

# Prompts are letters, which the scripted model writes back, a letter a piece.
LETTERS = ["--first-token-id", "97", "--vocab-size", "26"]


class Bench(harness.ServerTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="baton-bench-")
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return str(pathlib.Path(self.folder.name) / name)

    def bench(self, *flags, code=0, port=None, environment=None):
        command = [harness.BATON, "bench", "serve", "--port", str(port or self.server.port), *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def measure(self, *flags, **options):
        self.bench(*flags, "--json", self.path("r.json"), "--save-detailed", **options)
        return json.loads(pathlib.Path(self.path("r.json")).read_text())

    def test_counts_are_the_servers(self):
        before = self.server.metrics()
        r = self.measure("--num-prompts", "30", "--random-input-len", "40", "--random-output-len", "20", "--max-concurrency", "4",
                         "--num-warmups", "0", *LETTERS)
        # A client has its last event before the server has counted the request.
        self.wait_until_idle()

        def grown(name):
            return sum(m * v for m, seen in ((1, self.server.metrics()), (-1, before)) for k, v in seen.items() if k.split("{")[0] == name)

        self.wait_for(lambda: grown("baton_generation_tokens_total") >= 600 and grown("baton_prompt_tokens_total") >= 1200, "not counted")

        self.assertEqual((r["completed"], r["failed"], r["unsent"]), (30, 0, 0))
        self.assertEqual((r["total_input_tokens"], r["total_output_tokens"]), (1200, 600))
        self.assertEqual(grown("baton_prompt_tokens_total"), 1200)
        self.assertEqual(grown("baton_generation_tokens_total"), 600)
        self.assertEqual(r["mismatches"], {})
        self.assertEqual(r["errors"], [""] * 30)
        self.assertLessEqual(r["max_concurrent_requests"], 4)
        self.assertTrue(all(1 <= len(gaps) + 1 <= 20 for gaps in r["itls"]))
        # The figures follow from the requests.
        self.assertAlmostEqual(r["mean_ttft_ms"], 1e3 * sum(r["ttfts"]) / 30, places=6)
        gaps = [g for row in r["itls"] for g in row]
        # Where all chunks of every answer came in one read, there are none.
        self.assertAlmostEqual(r["mean_itl_ms"], 1e3 * sum(gaps) / max(1, len(gaps)), places=6)
        self.assertAlmostEqual(r["output_throughput"], 600 / r["duration"], places=6)
        self.assertAlmostEqual(sum(r["output_tokens_per_second"]), 600, places=6)
        for e2e, ttft, row in zip(r["e2els"], r["ttfts"], r["itls"]):
            self.assertAlmostEqual(e2e, ttft + sum(row), places=9)

    def test_chats_agents_and_groups(self):
        r = self.measure("--backend", "openai-chat", "--dataset-name", "agents", "--agents", "3", "--agent-turns", "3",
                         "--agent-system-len", "30",
                         "--agent-task-len", "12", "--agent-result-len", "12", "--agent-output-len", "6")
        self.assertEqual((r["completed"], r["failed"]), (9, 0))
        self.assertEqual(r["output_lens"], [6] * 9)
        r = self.measure("--dataset-name", "generated-shared-prefix", "--gsp-num-groups", "2", "--num-prompts", "8",
                         "--gsp-system-prompt-len", "128",
                         "--gsp-question-len", "8", "--gsp-output-len", "4", "--request-rate", "200", "--burstiness", "0.5", *LETTERS)
        self.assertEqual(r["completed"], 8)
        self.assertEqual(r["input_lens"], [136] * 8)
        self.assertAlmostEqual(r["shared_prefix_share"], 6 * 128 / (8 * 136))

    def test_the_same_seed_asks_the_same(self):
        flags = ["--num-prompts", "6", "--random-input-len", "30", "--random-output-len", "8", "--random-range-ratio", "0.5",
"--num-warmups", "0",
                 "--request-rate", "500", *LETTERS]
        one, two = self.measure(*flags, "--seed", "4"), self.measure(*flags, "--seed", "4")
        for key in ("input_lens", "output_lens", "start_times"):
            self.assertEqual(one[key], two[key])
        self.assertNotEqual(one["start_times"], self.measure(*flags, "--seed", "5")["start_times"])

    def test_runs_pages_and_comparisons(self):
        flags = ["--num-prompts", "12", "--random-input-len", "16", "--random-output-len", "8", *LETTERS]
        done = self.bench(*flags, "--max-concurrency", "1,4", "--slo", "article", "--json", self.path("a.json"), "--html",
                          self.path("a.html"))
        self.assertIn("4 at once", done.stdout)
        self.assertIn("objective article", done.stdout)
        self.assertEqual(len(json.loads(pathlib.Path(self.path("a.json")).read_text())["runs"]), 2)
        page = pathlib.Path(self.path("a.html")).read_text()
        self.assertIn("Throughput by load", page)
        self.assertNotIn("<script", page)
        done = self.bench(*flags, "--max-concurrency", "4", "--repeats", "2", "--goodput", "ttft:60000", "tpot:1000", "--json",
                          self.path("b.json"))
        self.assertIn("(largest - smallest) / mean", done.stdout)
        self.assertIn("12 of 12 requests keep it", done.stdout)
        done = self.bench("--compare", self.path("a.json"), self.path("b.json"))
        self.assertIn("95 % interval", done.stdout)
        done = self.bench("--compare", self.path("a.json"), self.path("a.html"), code=1)
        self.assertIn("a.html", done.stderr)

    def test_traces_and_written_prompts(self):
        trace = pathlib.Path(self.path("t.jsonl"))
        trace.write_text("".join(json.dumps({"timestamp": 1000 + 5 * i, "input_length": 20, "output_length": 5, "hash_ids": [i % 2]}) + "\n"
                                 for i in range(6)))
        r = self.measure("--dataset-name", "mooncake", "--dataset-path", str(trace), "--use-trace-timestamps",
                         "--mooncake-slowdown-factor", "2",
                         *LETTERS)
        self.assertEqual(r["completed"], 6)
        for i, at in enumerate(r["start_times"]):
            self.assertAlmostEqual(at, i / 100)
        custom = pathlib.Path(self.path("c.jsonl"))
        custom.write_text('{"prompt": "#repeat 3 ab", "output_tokens": 6}\n{"prompt": "#fail 2 ab", "output_tokens": 6}\n')
        done = self.bench("--backend", "vllm-chat", "--dataset-name", "custom", "--dataset-path", str(custom), "--max-concurrency", "1",
                          code=1)
        self.assertIn("1 requests completed", done.stdout)
        # The failure comes behind two tokens, or, where the server gets to see all at once, in place of the answer.
        self.assertRegex(done.stdout, "failed: 1 x (error event|http 500)")
        self.assertIn("1 requests failed", done.stderr)
        custom.write_text("{}\n")
        self.assertIn("c.jsonl:1", self.bench("--dataset-name", "custom", "--dataset-path", str(custom), code=1).stderr)

    def test_what_is_wrong_is_said_before_anything_is_measured(self):
        for flags in (["--request-rate", "1", "--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "2"],
                      ["--ramp-up-strategy", "linear"], ["--dataset-name", "none"], ["--num-prompts", "0"], ["--compare", "one"],
                      ["--workload", "small-decode", "--dataset-name", "random"]):
            self.bench(*flags, code=2)
        for flags, part in ((["--goodput", "x:1"], "--goodput"), (["--request-rate", "-1"], "--request-rate"), (["--header", "x"],
                            "--header"),
                            (["--extra-request-body", "["], "--extra-request-body"), (["--dataset-name", "custom"], "--dataset-path"),
                            (["--json", self.path("none/x.json")], "/none/"), (["--use-trace-timestamps"], "mooncake"),
                            (["--dataset-name", "generated-shared-prefix", "--num-prompts", "7"], "--num-prompts"),
                            (["--model", "other", *LETTERS], "other"), (["--vocab-size", "16000000"], "nothing was measured")):
            done = self.bench(*flags, code=1)
            self.assertTrue(done.stderr.startswith("baton: "), done.stderr)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stdout, "")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.assertIn("127.0.0.1", self.bench("--ready-check-timeout-sec", "0", code=1, port=free.getsockname()[1]).stderr)


class Keys(harness.PatientTest):
    def test_keys_go_with_every_request(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text(f"someone {hashlib.sha256(b'secret').hexdigest()}\n")
            server = harness.Server("--api-key-file", str(keys))
            self.addCleanup(server.kill)
            command = [harness.BATON, "bench", "serve", "--port", str(server.port), "--num-prompts", "3", "--random-input-len", "8",
                       "--random-output-len", "4", "--model", "scripted", *LETTERS]
            good = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "BATON_API_KEY": "secret"})
            self.assertEqual(good.returncode, 0, good.stderr)
            bad = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "BATON_API_KEY": "wrong"})
            self.assertEqual(bad.returncode, 1)
            self.assertIn("http 401", bad.stderr)


class Interrupt(harness.PatientTest):
    def test_ctrl_c_gives_the_figures_so_far(self):
        server = harness.Server(pace_us=5000)
        self.addCleanup(server.kill)
        command = [harness.BATON, "bench", "serve", "--port", str(server.port), "--num-prompts", "100000", "--random-input-len", "8",
                   "--random-output-len", "4", "--max-concurrency", "2", *LETTERS]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out = []
        reader = threading.Thread(target=lambda: out.append(process.stdout.read()))
        reader.start()
        self.wait_for(lambda: server.metrics()["baton_generation_tokens_total"] > 40, "no request ended", 30)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 1)
        reader.join()
        self.assertIn("requests completed", out[0])
        self.assertIn("stopped before all was sent", out[0])
        process.stderr.close()
        process.stdout.close()


if __name__ == "__main__":
    harness.main()
