#!/usr/bin/env python3
"""Load, limits and ends: what happens when clients go, wait, come in crowds, read slowly, and when the server is told to end."""
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

import harness
import openai


BEGUN = b'_content":"a'  # the scripts below have begun, with one token or with some at once


def chat_body(text, **options):
    return json.dumps({"model": "scripted", "messages": [{"role": "user", "content": text}], **options}).encode()


def open_stream(server, text, **options):
    """A socket with a streamed chat on it, behind its head."""
    body = chat_body(text, stream=True, **options)
    s = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return s


def read_until(s, wanted, seconds=20):
    data = b""
    deadline = time.monotonic() + seconds
    while wanted not in data and time.monotonic() < deadline:
        part = s.recv(65536)
        if not part:
            break
        data += part
    return data


class Operation(harness.PatientTest):
    def start(self, *flags, **options):
        server = harness.Server(*flags, **options)
        self.addCleanup(server.kill)
        return server

    def idle(self, server):
        def is_idle():
            m = server.metrics()
            return m["baton_requests_open"] == 0 and m["baton_sequences_running"] == 0 and m["baton_sequences_waiting"] == 0
        self.wait_for(is_idle, "not idle")

    def test_a_client_that_goes_is_cancelled(self):
        server = self.start(pace_us=20000)  # each answer would take two minutes
        running = open_stream(server, "#repeat 4000 abcdef ", max_tokens=6000)
        read_until(running, BEGUN)
        running.close()
        self.wait_for(lambda: server.metrics()['baton_requests_abandoned_total{stage="answering"}'] == 1, "not noticed")
        self.idle(server)
        # Whole answers, too; and while they wait.
        body = chat_body("#repeat 4000 abcdef ", max_tokens=6000)
        whole = socket.create_connection(("127.0.0.1", server.port))
        whole.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        self.wait_for(lambda: server.metrics()["baton_sequences_running"] == 1, "not running")
        whole.close()
        self.idle(server)
        self.assertLess(server.metrics()["baton_generation_tokens_total"], 6000)
        self.assertEqual(server.stop(), 0)

    def test_a_killed_client(self):
        server = self.start(pace_us=20000)
        code = ("import openai, sys\n"
                f"c = openai.OpenAI(base_url='{server.url}/v1', api_key='x')\n"
                "for chunk in c.chat.completions.create(model='scripted', stream=True, max_tokens=6000,\n"
                "        messages=[{'role': 'user', 'content': '#repeat 4000 abcdef '}]):\n"
                "    print('.', flush=True)\n")
        client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        client.stdout.readline()
        client.kill()
        client.wait()
        client.stdout.close()
        self.idle(server)
        self.assertEqual(server.stop(), 0)

    def test_a_full_queue(self):
        server = self.start("--max-num-seqs", "4", "--max-queued-requests", "1", pace_us=5000)
        streams = [open_stream(server, "#repeat 4000 abcdef ", max_tokens=6000) for _ in range(5)]
        self.wait_for(lambda: server.metrics()["baton_requests_open"] == 5, "not taken")
        with self.assertRaises(openai.RateLimitError) as e:
            server.openai().chat.completions.create(model="scripted", messages=[{"role": "user", "content": "a"}])
        self.assertEqual(e.exception.code, "slow_down")
        self.assertGreaterEqual(int(e.exception.response.headers["retry-after"]), 1)
        for s in streams[1:]:
            s.close()
        self.wait_for(lambda: server.metrics()["baton_requests_open"] == 1, "not given back")
        answer = server.openai().chat.completions.create(model="scripted", messages=[{"role": "user", "content": "a</think>b"}])
        self.assertEqual(answer.choices[0].message.content, "b")
        self.assertIn(BEGUN, read_until(streams[0], BEGUN))
        streams[0].close()
        self.idle(server)
        self.assertEqual(server.stop(), 0)

    def test_prompts_of_one_request_are_taken_together_or_not_at_all(self):
        server = self.start("--max-num-seqs", "2", "--max-queued-requests", "2", pace_us=20000)
        running = open_stream(server, "#repeat 4000 abcdef ", max_tokens=6000)
        read_until(running, BEGUN)
        client = server.openai()
        for stream in (False, True) * 10:  # three of four places are left
            with self.assertRaises(openai.RateLimitError):
                client.completions.create(model="scripted", prompt=["#repeat 50 a", "b"], n=2, max_tokens=50, stream=stream)
        self.assertEqual(server.metrics()["baton_requests_total"], 1)
        with self.assertRaisesRegex(openai.BadRequestError, "at most 4 may run and wait"):
            client.completions.create(model="scripted", prompt=["a", "b", "c"], n=2)
        self.assertEqual(len(client.completions.create(model="scripted", prompt=["a", "b", "c"], max_tokens=5).choices), 3)
        running.close()
        self.idle(server)
        self.assertEqual(server.stop(), 0)

    def test_a_deadline(self):
        server = self.start(pace_us=5000)
        client = server.openai()
        with self.assertRaises(openai.APIStatusError) as e:
            client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "#repeat 4000 abcdef "}],
                                           extra_headers={"x-request-timeout-ms": "200"})
        self.assertEqual(e.exception.status_code, 408)
        self.idle(server)
        self.assertEqual(server.stop(), 0)

    def test_a_slow_reader_is_cut_and_nobody_else(self):
        server = self.start("--max-stream-bytes", "65536")
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        body = chat_body("#repeat 1000 abcdef ", max_tokens=6000, stream=True, logprobs=True, top_logprobs=20)
        slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        answer = server.openai().chat.completions.create(model="scripted", messages=[{"role": "user", "content": "a</think>quick"}])
        self.assertEqual(answer.choices[0].message.content, "quick")
        self.wait_for(lambda: server.metrics()["baton_http_slow_readers_total"] >= 1, "not cut")
        self.idle(server)
        slow.close()
        self.assertEqual(server.stop(), 0)

    def test_drain(self):
        server = self.start(pace_us=5000)
        stream = open_stream(server, "#repeat 20 abcdef ", max_tokens=200)
        read_until(stream, BEGUN)
        server.signal()
        self.wait_for(lambda: any("ending" in e.get("message", "") for e in server.log), "not ending")

        def refuses():
            try:
                socket.create_connection(("127.0.0.1", server.port), timeout=20).close()
                return False
            except OSError:
                return True
        self.wait_for(refuses, "it still takes connections")
        self.assertIn(b"[DONE]", read_until(stream, b"[DONE]"))
        self.assertEqual(server.process.wait(10), 0)

    def test_a_second_signal_ends_at_once(self):
        server = self.start("--shutdown-timeout", "600", pace_us=100000)  # the answer would take ten minutes
        stream = open_stream(server, "#repeat 1000 abcdef ", max_tokens=6000)
        read_until(stream, BEGUN)
        server.signal()
        self.wait_for(lambda: any("ending" in e.get("message", "") for e in server.log), "not ending")
        server.signal()
        rest = read_until(stream, b"never")
        self.assertEqual(server.process.wait(60), 1)
        self.assertNotIn(b"[DONE]", rest)
        self.assertIn(b'"error"', rest)

    def test_keys(self):
        import hashlib
        path = os.path.join(harness.MODEL, "keys")

        def write(*keys):
            with open(path, "w", encoding="utf-8") as f:
                f.write("# name hash role\n" + "".join(f"{n} {hashlib.sha256(k.encode()).hexdigest()} {r}\n" for n, k, r in keys))
        write(("alice", "k1", ""), ("root", "k2", "admin"))
        server = self.start("--api-key-file", path)
        ask = {"model": "scripted", "messages": [{"role": "user", "content": "a</think>b"}]}
        with self.assertRaises(openai.AuthenticationError) as e:
            server.openai("wrong").chat.completions.create(**ask)
        self.assertEqual(e.exception.response.headers["www-authenticate"], "Bearer")
        server.openai("k1").chat.completions.create(**ask)
        server.anthropic("k1").messages.create(**ask, max_tokens=9)

        def flush(key):
            request = urllib.request.Request(server.url + "/flush_cache", b"", {"Authorization": f"Bearer {key}"})
            try:
                return urllib.request.urlopen(request, timeout=10).status
            except urllib.error.HTTPError as e:
                return e.code
        self.idle(server)
        self.assertEqual([flush("k1"), flush("k2")], [403, 200])
        write(("bob", "k3", ""))
        server.signal(signal.SIGHUP)
        self.wait_for(lambda: any("read again" in e.get("message", "") for e in server.log), "not read again")
        with self.assertRaises(openai.AuthenticationError):
            server.openai("k1").chat.completions.create(**ask)
        server.openai("k3").chat.completions.create(**ask)
        with open(path, "w", encoding="utf-8") as f:
            f.write("nonsense\n")
        server.signal(signal.SIGHUP)
        self.wait_for(lambda: any("stays in use" in e.get("message", "") for e in server.log), "not refused")
        server.openai("k3").chat.completions.create(**ask)
        self.assertEqual(server.stop(), 0)

    def test_what_would_leave_a_server_open_is_refused(self):
        for flags, message in ((("--api-key", ""), "the key is empty"), (("--ssl-ca-certs", "/nowhere"), "it needs --ssl-certfile")):
            with self.assertRaisesRegex(RuntimeError, message):
                self.start(*flags)

    def test_what_serve_refuses_config_check_refuses(self):
        one = [harness.BATON, "config", "check", "--model", harness.MODEL]
        self.assertEqual(subprocess.run(one, capture_output=True, timeout=60).returncode, 0)
        nowhere = os.path.join(harness.MODEL, "nowhere")
        wrong = (["--model", nowhere], ["--chat-template", nowhere], ["--api-key-file", nowhere], ["--tokenizer", nowhere],
                 ["--speculative-algorithm", "DFLASH"], ["--speculative-num-steps", "3"], ["--speculative-adaptive"],
                 ["--speculative-algorithm", "NEXTN"], ["--ssl-certfile", nowhere], ["--allowed-origins", "page of mine"], ["--host", ""],
                 ["--role", "decode", "--host", "0.0.0.0"], ["--prefill", "http://127.0.0.1:1"])
        for flags in wrong:
            said = []
            for command in (["config", "check"], ["serve", "--port", "0"]):
                model = [] if flags[0] == "--model" else ["--model", harness.MODEL]
                done = subprocess.run([harness.BATON, *command, *model, *flags], capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 1, (command, flags, done.stderr))
                said.append(done.stderr.splitlines()[-1])
            self.assertEqual(*said)

    def test_memory_that_no_machine_has_is_refused(self):
        for flags in (["--memory", str(1 << 49)], ["--host-memory", str(1 << 49)]):
            done = subprocess.run([harness.BATON, "serve", "--model", harness.MODEL, "--port", "0", *flags], capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, f"^baton: {flags[0]} {flags[1]} .*is more than")

    @unittest.skipUnless(shutil.which("openssl"), "the program openssl, which makes a certificate, is not installed")
    def test_tls(self):
        certificate, key = (os.path.join(harness.MODEL, name) for name in ("certificate.pem", "key.pem"))
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate]
        subprocess.run(made, check=True, stderr=subprocess.DEVNULL)
        server = self.start("--ssl-certfile", certificate, "--ssl-keyfile", key)
        context = ssl.create_default_context(cafile=certificate)
        with urllib.request.urlopen(f"https://127.0.0.1:{server.port}/v1/models", timeout=10, context=context) as answer:
            self.assertEqual(json.load(answer)["data"][0]["id"], "scripted")
        body = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": "a</think>secret"}]}
        request = urllib.request.Request(f"https://127.0.0.1:{server.port}/v1/chat/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
        with self.assertRaises(OSError):  # plain HTTP is not spoken
            urllib.request.urlopen(server.url + "/livez", timeout=10)
        with self.assertRaises(OSError):  # nor is anybody believed
            urllib.request.urlopen(f"https://127.0.0.1:{server.port}/livez", timeout=10)
        self.assertEqual(server.stop(), 0)

    def test_strict_requests(self):
        ask = {"model": "scripted", "messages": [{"role": "user", "content": "a</think>b"}], "extra_body": {"nonsense": 1}}
        server = self.start("--strict-requests", "true")
        with self.assertRaisesRegex(openai.BadRequestError, "nonsense"):
            server.openai().chat.completions.create(**ask)
        self.assertEqual(server.stop(), 0)
        server = self.start()
        answer = server.openai().chat.completions.with_raw_response.create(**ask)
        self.assertEqual(answer.headers["x-ignored-fields"], "nonsense")
        self.assertEqual(server.stop(), 0)

    def test_a_model_with_impossible_defaults_is_refused(self):
        path = os.path.join(harness.MODEL, "generation_config.json")
        self.addCleanup(os.remove, path)
        for config, message in (({"temperature": -1}, "temperature is -1; it must be from 0 to 100"), ({"top_p": 0}, "top_p is 0"),
                                ({"top_k": 1e12}, "top_k is"), ({"min_p": "x"}, "min_p is not a number")):
            with open(path, "w", encoding="utf-8") as f:
                json.dump(config, f)
            with self.assertRaisesRegex(RuntimeError, message):
                self.start()

    def test_a_model_without_a_chat_template_completes_text(self):
        template, config = (os.path.join(harness.MODEL, name) for name in ("chat_template.jinja", "tokenizer_config.json"))
        with open(template, encoding="utf-8") as f:
            text = f.read()

        def restore():
            os.remove(config)
            with open(template, "w", encoding="utf-8") as f:
                f.write(text)
        self.addCleanup(restore)
        os.remove(template)
        with open(config, "w", encoding="utf-8") as f:
            f.write("{}")
        server = self.start()
        with self.assertRaisesRegex(openai.BadRequestError, "chat template"):
            server.openai().chat.completions.create(model="scripted", messages=[{"role": "user", "content": "a"}])
        self.assertEqual(server.openai().completions.create(model="scripted", prompt="abc", max_tokens=3).choices[0].text, "abc")
        self.assertEqual(server.stop(), 0)
        with open(template, "w", encoding="utf-8") as f:
            f.write(" \n")
        with self.assertRaisesRegex(RuntimeError, "is empty"):
            self.start()

    def test_whole_answers_have_a_bound_together(self):
        server = self.start("--max-answer-bytes", "200000")
        ask = {"model": "scripted", "messages": [{"role": "user", "content": "#repeat 2000 abcd"}], "max_tokens": 8000}
        with self.assertRaises(openai.InternalServerError) as caught:
            server.openai().chat.completions.create(**ask, logprobs=True, top_logprobs=20)
        self.assertEqual(caught.exception.status_code, 503)
        self.assertIn("stream", str(caught.exception))
        self.idle(server)
        self.assertEqual(server.metrics()["baton_answer_bytes"], 0)
        server.openai().chat.completions.create(**ask)
        few = {**ask, "max_tokens": 200, "logprobs": True, "top_logprobs": 20}
        chunks = list(server.openai().chat.completions.create(**few, stream=True))
        self.assertEqual(sum(len(c.choices[0].logprobs.content) for c in chunks if c.choices and c.choices[0].logprobs), 200)
        self.assertEqual(server.stop(), 0)

    def test_what_nobody_reads_counts_until_its_connection_is_gone(self):
        server = self.start()
        # About 9 MB: more than the system takes off the server's hands.
        body = chat_body("#repeat 2000 abcd", max_tokens=6000, logprobs=True, top_logprobs=20)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", server.port))
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            self.wait_for(lambda: server.metrics()["baton_generation_tokens_total"] == 6000, "it is never made")
            self.assertGreater(server.metrics()["baton_answer_bytes"], 0)
        self.wait_for(lambda: server.metrics()["baton_answer_bytes"] == 0, "it is held for ever")
        self.assertEqual(server.stop(), 0)

    def test_a_crowd(self):
        server = self.start("--max-num-seqs", "64")
        failures = []

        def talk(i):
            client = server.openai()
            for k in range(5):
                text = f"text {i} {k} — é日"
                got = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(
                    model="scripted", stream=True, messages=[{"role": "user", "content": "a</think>" + text}]) if c.choices)
                if got != text:
                    failures.append((text, got))
        threads = [threading.Thread(target=talk, args=(i,)) for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])
        self.idle(server)
        self.assertEqual(server.stop(), 0)

    def test_cors(self):
        server = self.start("--allowed-origins", "https://page.example")
        request = urllib.request.Request(server.url + "/v1/models", headers={"Origin": "https://page.example"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            self.assertEqual(answer.headers["access-control-allow-origin"], "https://page.example")
        request = urllib.request.Request(server.url + "/v1/models", headers={"Origin": "https://other.example"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            self.assertIsNone(answer.headers["access-control-allow-origin"])
        # A page could post without asking first, and use the server although it never sees the answer.
        for origin, allowed in (("https://page.example", True), (server.url, True), ("https://other.example", False), ("null", False)):
            request = urllib.request.Request(server.url + "/tokenize", b'{"prompt": "a"}', {"Content-Type": "text/plain", "Origin": origin})
            try:
                status = urllib.request.urlopen(request, timeout=10).status
            except urllib.error.HTTPError as e:
                status = e.code
                self.assertIn("--allowed-origins", json.load(e)["error"]["message"])
            self.assertEqual(status, 200 if allowed else 403, origin)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    harness.main()
