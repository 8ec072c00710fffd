#!/usr/bin/env python3
"""What a router does when nothing is wrong: the answers of its instances, spread over them, with everything handed on."""
import os
import signal
import subprocess
import tempfile
import unittest

import fleet
import harness


class Routing(fleet.FleetTest):
    def test_many_chats_are_answered_as_by_one_instance(self):
        servers = [self.instance("--max-num-seqs", "32") for _ in range(3)]
        router = self.router(*servers)
        self.ready(router, 3)
        bodies = [fleet.chat(f"#repeat {5 + i} a{i} </think>b{i}" if i % 3 else f"a{i}</think>b", stream=i % 2 == 0) for i in range(64)]
        clients = [fleet.Client(router.port, body) for body in bodies]
        for client, body in zip(clients, bodies):
            alone = fleet.ask(servers[0].port, body).text()
            self.assertIsNotNone(alone)
            self.assertEqual(client.result().text(), alone)
        for server in servers:
            self.assertGreater(self.at(router, server, "served_total"), 0)
        self.idle(router, *servers)

    def test_a_conversation_stays_where_it_began(self):
        servers = [self.instance() for _ in range(3)]
        router = self.router(*servers)
        self.ready(router, 3)
        text = "x" * 3000
        places = set()
        for turn in range(6):
            body = {"seed": turn, "model": "scripted", "messages": [{"role": "user", "content": text}]}
            answer = fleet.ask(router.port, body)
            self.assertEqual(answer.status, 200)
            places.add(answer.headers["x-baton-instance"])
            text += "y" * 500
        self.assertEqual(len(places), 1)

    def test_a_full_instance_is_passed_over(self):
        servers = [self.instance("--max-num-seqs", "1", "--max-queued-requests", "0", pace_us=3000) for _ in range(2)]
        router = self.router(*servers)
        self.ready(router, 2)
        clients = [fleet.Client(router.port, fleet.chat("#repeat 60 abcdef ", stream=True)) for _ in range(2)]
        for client in clients:
            self.assertTrue(client.begun.wait(20))
        refused = fleet.ask(router.port, fleet.chat("a"))
        self.assertEqual(refused.status, 429)
        self.assertEqual(refused.json()["error"]["code"], "slow_down")
        for client in clients:
            self.assertIsNotNone(client.result().text())
        self.idle(router, *servers)

    def test_ids_keys_and_errors_are_handed_on(self):
        server = self.instance("--api-key", "k1")
        router = self.router(server)
        self.ready(router, 1)
        trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
        named = {"authorization": "Bearer k1", "x-request-id": "mine", "traceparent": trace}
        answer = fleet.ask(router.port, fleet.chat("a</think>b"), headers=named)
        self.assertEqual(answer.text(), "a|b")
        self.assertEqual(answer.headers["x-request-id"], "mine")
        self.assertTrue(answer.headers["traceparent"].startswith(trace[:36]))
        self.assertNotEqual(answer.headers["traceparent"], trace)
        self.assertEqual(server.requests()[-1]["trace_id"], trace[3:35])
        self.assertEqual(router.requests()[-1]["request_id"], "mine")
        self.assertEqual(fleet.ask(router.port, fleet.chat("a")).status, 401)
        keyed = {"authorization": "Bearer k1"}
        self.assertEqual(fleet.ask(router.port, fleet.chat("a"), headers={**keyed, "origin": "http://elsewhere"}).status, 403)
        wrong = fleet.ask(router.port, fleet.chat("a", temperature=-1), headers=keyed)
        self.assertEqual((wrong.status, wrong.json()["error"]["param"]), (400, "temperature"))
        self.assertEqual(fleet.ask(router.port, {}, path="/nowhere").status, 404)
        self.assertEqual(fleet.ask(router.port, {}, path="/v1/models").status, 405)
        client = router.openai("k1")
        self.assertEqual([m.id for m in client.models.list()], ["scripted"])
        # What names the request in an error of the router's own.
        server.kill()
        self.ready(router, 0)
        self.assertEqual(fleet.ask(router.port, fleet.chat("a"), headers={"x-request-id": "mine"}).headers["x-request-id"], "mine")

    def test_pages(self):
        server = self.instance()
        router = self.router(server)
        self.ready(router, 1)
        info = fleet.get(router.port, "/server_info").json()
        self.assertEqual([(i["url"], i["health"]) for i in info["instances"]], [(f"http://127.0.0.1:{server.port}", "ready")])
        page = fleet.get(router.port, "/")
        self.assertIn(b"page/fleet.js", page.body)
        self.assertIn("default-src 'none'", page.headers["content-security-policy"])
        for name in ("fleet.js", "style.css"):
            self.assertEqual(fleet.get(router.port, f"/page/{name}").status, 200)
        self.assertEqual(fleet.get(router.port, "/page/other").status, 404)
        for path in ("/livez", "/readyz", "/health", "/version"):
            self.assertEqual(fleet.get(router.port, path).status, 200)
        self.assertEqual(router.stop(), 0)

    def test_up(self):
        self.check_up({"u0", "u1"}, 2, "--unified", "2")

    @unittest.skipUnless(fleet.may_write_into_others(), "the system does not let processes write into each other")
    def test_up_with_prefill_and_decode_apart(self):
        self.check_up({"p0", "p1", "d0"}, 1, "--prefill", "2", "--decode", "1", "--transfer-backend", "same-host")

    def check_up(self, instances, ready, *flags):
        command = [harness.BATON, "up", *flags, "--model", harness.MODEL, "--port", "0", "--threads", "1"]
        command += ["--served-model-name", "small", "--max-num-seqs", "2"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        names, port = set(), None
        for line in process.stderr:
            names.add(line.split("|")[0].strip())
            if "the fleet answers at" in line:
                port = int(line.split("http://127.0.0.1:")[1].split()[0])
                break
        self.assertEqual(names, {"router", "up", *instances})
        self.wait_for(lambda: fleet.get(port, "/server_info").json()["ready"] == ready, "not ready", 20)
        bodies = [fleet.chat(f"{i}", model="small", max_tokens=8, temperature=0) for i in range(8)]
        clients = [fleet.Client(port, body) for body in bodies]
        for client, body in zip(clients, bodies):
            self.assertEqual(client.result().text(), fleet.ask(port, body).text())
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(20), 0, rest)
        with self.assertRaises(OSError):
            fleet.get(port, "/livez")

    def test_up_ends_when_a_part_of_it_does(self):
        made = subprocess.run([harness.BATON, "up", "--unified", "1", "--model", "/nowhere"], stderr=subprocess.PIPE, text=True, timeout=60,
                              check=False)
        self.assertEqual(made.returncode, 1)
        self.assertIn("u0      | baton: ", made.stderr)
        self.assertIn("u0 ended with 1", made.stderr)

    def test_what_cannot_be_is_refused(self):
        def refused(*flags, code=1):
            made = subprocess.run([harness.BATON, "router", *flags], stderr=subprocess.PIPE, text=True, timeout=20, check=False)
            self.assertEqual(made.returncode, code, made.stderr)
            return made.stderr
        self.assertIn("no instances are given", refused())
        one = "--unified=http://127.0.0.1:1"
        self.assertIn("give --fleet-secret-file", refused(one, "--host=0.0.0.0"))
        self.assertIn("given twice", refused(one, "--unified=127.0.0.1:1"))
        self.assertIn("with a path", refused("--unified=http://127.0.0.1:1/v1"))
        self.assertIn("not an address", refused("--unified=ftp://x"))
        refused(one, "--attempts=0", code=2)
        refused(one, "--log-level=loud", code=2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "secret")
            for text, message in (("short", "shorter than"), ("with a space in it, and long enough", "visible")):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text + "\n")
                self.assertIn(message, refused(one, "--host=0.0.0.0", f"--fleet-secret-file={path}"))

    def test_the_reference_is_what_the_tables_make(self):
        made = subprocess.run([harness.BATON, "config", "router"], stdout=subprocess.PIPE, check=True, timeout=20).stdout.decode()
        page = (harness.ROOT / "docs/router-reference.md").read_text(encoding="utf-8")
        self.assertEqual(made, page, "stale: run make docs")


if __name__ == "__main__":
    harness.main()
