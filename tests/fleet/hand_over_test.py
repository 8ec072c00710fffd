#!/usr/bin/env python3
"""Prefill and decode as processes answer what one instance answers, bit by bit, and say no to what they do not do."""
import json
import os
import tempfile
import unittest

import instances
from instances import content, fleet, harness, request

SEED = int(os.environ.get("BATON_SEED", "20261201"))
COUNT = int(os.environ.get("BATON_PROMPTS", "24"))


class HandOver(instances.ApartTest):
    def check_equal(self, backend):
        self.flags = (*instances.ApartTest.flags[:-1], f"--transfer-backend={backend}")
        unified = self.serve()
        # Decode first, which waits for prefill; then the other way round.
        port = fleet.free_port()
        first = self.decode(port)
        self.assertEqual(fleet.get(first.port, "/readyz").status, 503)
        none = self.complete(first, request([65]))
        self.assertEqual(none.status, 503, none.body)
        self.assertIn("No prefill instance", none.json()["error"]["message"])
        self.assertTrue(none.headers["retry-after"])
        prefill = self.prefill(port=port)
        second = self.decode(prefill)
        for decode in (first, second):
            self.there(decode, 1)
            self.assertEqual(fleet.get(decode.port, "/readyz").status, 200)
        bodies = [request(prompt, seed) for i, prompt in enumerate(instances.prompts(COUNT, SEED)) for seed in (None, i)]
        wanted = [content(self.complete(unified, body)) for body in bodies]
        # One after the other, then many at once, when everything is cached somewhere.
        for body, want in zip(bodies, wanted):
            self.assertEqual(content(self.complete(first, body)), want, body)
        clients = [self.begin((first, second)[i % 2], body) for i, body in enumerate(bodies)]
        for client, want in zip(clients, wanted):
            self.assertEqual(content(client.result()), want, client.request)
        for decode in (first, second):
            m = decode.metrics()
            self.assertEqual(m["baton_prefill_rows_total"], 0)  # no row of a prompt
            self.assertEqual(m["baton_hand_over_mismatches_total"], 0)
            self.assertGreater(m['baton_ordered_pages_total{from="cache"}'], 0)
        self.assertEqual(sum(d.metrics()['baton_prompts_ordered_total{end="landed"}'] for d in (first, second)), 2 * len(bodies))
        self.at_rest(prefill, first, second)
        for server in (first, second, prefill):
            self.assertEqual(server.stop(), 0, server.log[-5:])

    def test_the_same_bits_as_one_instance(self):
        for backend in instances.BACKENDS:
            with self.subTest(backend=backend):
                self.check_equal(backend)

    def test_a_prefill_instance_does_not_answer(self):
        prefill = self.prefill()
        for path, body in (("/v1/completions", request([65])), ("/v1/chat/completions", fleet.chat("a")), ("/generate", {"text": "a"})):
            answer = fleet.ask(prefill.port, body, path=path)
            self.assertEqual(answer.status, 421, answer.body)
            self.assertEqual(answer.json()["error"]["code"], "prefill_instance")
        self.assertEqual(fleet.get(prefill.port, "/readyz").status, 200)
        self.assertEqual(self.info(prefill)["role"], "prefill")

    def test_what_a_decode_instance_cannot_do_yet_is_refused(self):
        prefill = self.prefill()
        decode = self.decode(prefill)
        self.there(decode, 1)
        answer = self.complete(decode, request([65], n=2))
        self.assertEqual(answer.status, 400, answer.body)
        self.assertIn("n", answer.json()["error"]["message"])

    def test_different_models_are_no_pair(self):
        prefill = self.prefill()
        with tempfile.TemporaryDirectory() as folder:
            for model, flags in ((instances.model_of("small-fp8", folder), ()), (harness.MODEL, ("--state-dtype=bfloat16",))):
                decode = self.decode(prefill, model=model, flags=flags)
                self.wait_for(lambda decode=decode: self.info(decode)["peers"][0]["why"], "it was met", 20)
                self.assertRegex(self.info(decode)["peers"][0]["why"], "409.*different")
                self.assertEqual(fleet.get(decode.port, "/readyz").status, 503)
                decode.kill()
        self.there(self.decode(prefill), 1)

    def test_who_does_not_know_the_secret_is_nobody(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("0123456789abcdef-secret\n")
            file.flush()
            secret = f"--fleet-secret-file={file.name}"
            prefill = self.prefill(secret)
            stranger = self.decode(prefill)
            decode = self.decode(prefill, flags=(secret,))
            self.there(decode, 1)
            self.wait_for(lambda: "401" in self.info_of_stranger(stranger), "the stranger was met", 20)
            known = {"x-baton-fleet-secret": "0123456789abcdef-secret"}
            self.assertEqual(self.complete(decode, request([65])).status, 401)
            self.assertEqual(self.complete(decode, request([65]), headers={"x-baton-fleet-secret": "0123456789abcdef-secreT"}).status, 401)
            self.assertEqual(self.complete(decode, request([65]), headers=known).status, 200)
            for path in ("/fleet/meet", "/fleet/messages"):
                self.assertEqual(fleet.ask(prefill.port, {}, path=path).status, 401)
                self.assertEqual(fleet.ask(prefill.port, {}, path=path, headers=known).status, 400)  # no message
            # A router's list counts only from one that knows it.
            fleet.ask(decode.port, request([65]), path="/v1/completions", headers={"x-baton-prefill": "http://127.0.0.1:1"})
            self.assertEqual(len(self.peers(decode, known)), 1)
            fleet.ask(decode.port, request([65]), path="/v1/completions", headers={"x-baton-prefill": "http://127.0.0.1:1", **known})
            self.wait_for(lambda: len(self.peers(decode, known)) == 2, "the router's list was not heard")

    def info_of_stranger(self, server):
        return self.info(server)["peers"][0]["why"]

    def info(self, server, headers=None):
        connection = fleet.http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/server_info", headers=headers or {"x-baton-fleet-secret": "0123456789abcdef-secret"})
        body = connection.getresponse().read()
        connection.close()
        return json.loads(body)["fleet"]

    def peers(self, server, headers):
        return self.info(server, headers)["peers"]

    def test_flags_that_do_not_go_together(self):
        for flags, what in ((("--role=decode", "--host=0.0.0.0"), "--fleet-secret-file"),
                            (("--prefill=http://127.0.0.1:1",), "--prefill"),
                            (("--role=decode", "--prefill=http://127.0.0.1:1/v1"), "path"),
                            (("--role=prefill", "--fleet-certfile=x"), "--fleet-keyfile")):
            with self.assertRaises(RuntimeError) as failure:
                self.serve(*flags)
            self.assertIn(what, str(failure.exception))

    def test_a_client_that_goes_takes_its_order_along(self):
        # As many tokens a cycle as make a prompt long.
        prefill = self.prefill("--max-num-batched-tokens=16")
        decode = self.decode(prefill)
        self.there(decode, 1)
        chance = instances.random.Random(SEED)
        for _ in range(int(os.environ.get("BATON_STORM", "20"))):
            prompt = [chance.randrange(32, 127) for _ in range(chance.randrange(500, 3000))]
            connection = fleet.http.client.HTTPConnection("127.0.0.1", decode.port, timeout=60)
            before = decode.metrics()["baton_requests_total"]
            connection.request("POST", "/v1/completions", json.dumps(request(prompt)), {"content-type": "application/json"})
            self.wait_for(lambda before=before: decode.metrics()["baton_requests_total"] > before, "not taken")
            connection.close()
        self.at_rest(prefill, decode)
        body = request([65] * 300)
        self.assertEqual(content(self.complete(decode, body)), content(self.complete(self.serve(), body)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
