#!/usr/bin/env python3
"""Faults of real prefill and decode processes: a client gets the right answer or an error, and nothing is left of it anywhere."""
import os
import random
import signal
import unittest

import instances
from instances import content, fleet, harness, request

SEED = int(os.environ.get("BATON_SEED", "20261201"))
TIMES = int(os.environ.get("BATON_FAULTS", "2"))  # of what is tried at random moments
STORM = int(os.environ.get("BATON_STORM", "60"))

# So few tokens a cycle that a prompt takes hundreds of them, with a part of the hand-over every few.
SLOW = "--max-num-batched-tokens=8"
# A silent prefill instance is left soon. Those that are well say something every second.
IMPATIENT = "--prefill-timeout-ms=3000"
GONE = "baton_fleet_gone_total"
OPEN = 'baton_orders_now{state="open"}'
ARRIVED = 'baton_transfer_parts_total{what="arrived"}'
WRITTEN = 'baton_transfer_parts_total{what="written"}'


class Faults(instances.ApartTest):
    flags = (*instances.ApartTest.flags[:-1], f"--transfer-backend={instances.BACKENDS[0]}")

    @classmethod
    def setUpClass(cls):
        print(f"BATON_SEED={SEED}")
        cls.chance = random.Random(SEED)

    def setUp(self):
        self.unified = None

    def prompt(self, length=2500):
        return [self.chance.randrange(32, 127) for _ in range(length)]

    def right(self, body):
        """What the answer has to be."""
        if self.unified is None:
            self.unified = self.serve()
        return content(self.complete(self.unified, body))

    def stopped_in_transfer(self, prefill, decode, port=None):
        """A request whose prefill instance stands still in the middle of writing its pages: client and body."""
        for _ in range(20):
            body = request(self.prompt())
            before = prefill.metrics()[WRITTEN]
            client = self.begin(port or decode, body)
            at = self.chance.randrange(1, 20)
            self.wait_for(lambda before=before, at=at: prefill.metrics()[WRITTEN] >= before + at, "nothing is written")
            prefill.signal(signal.SIGSTOP)
            if decode.metrics()[OPEN] == 1:
                return client, body
            prefill.signal(signal.SIGCONT)  # it was done already
            client.result()
        raise AssertionError("no request was stopped in the middle of its transfer")

    def check_right_or_error(self, client, body):
        answer = client.result()
        if answer.status == 200:
            self.assertEqual(content(answer), self.right(body))
        else:
            self.assertGreaterEqual(answer.status, 500, answer.body)
            self.assertIn("error", answer.json())
        return answer

    def begin(self, server, body, **options):
        return fleet.Client(server if isinstance(server, int) else server.port, body, path="/v1/completions", **options)

    def test_prefill_is_killed_in_a_transfer_and_comes_back(self):
        port = fleet.free_port()
        prefill = self.prefill(SLOW, port=port)
        decode = self.decode(port)
        for i in range(TIMES):
            self.there(decode, 1)
            client, body = self.stopped_in_transfer(prefill, decode)
            prefill.kill()
            if i % 2:  # it is noticed before another one is there, or because another one is
                self.wait_for(lambda i=i: decode.metrics()[GONE] == i + 1, "nobody misses it")
            prefill = self.prefill(SLOW, port=port)
            self.assertEqual(content(client.result()), self.right(body))
            self.wait_for(lambda i=i: decode.metrics()[GONE] == i + 1, "nobody has missed it")
            self.at_rest(decode, prefill)
        self.assertEqual(decode.metrics()["baton_hand_over_mismatches_total"], 0)

    def test_prefill_is_killed_and_another_one_takes_over(self):
        first, second = self.prefill(SLOW), self.prefill(SLOW)
        decode = self.decode(first, second)
        self.there(decode, 2)
        # Whichever it is ordered from.
        bodies = [request(self.prompt()) for _ in range(4)]
        clients = [self.begin(decode, body) for body in bodies]
        self.wait_for(lambda: decode.metrics()[ARRIVED] > 0, "nothing arrives")
        self.chance.choice((first, second)).kill()
        self.there(decode, 1)
        for client, body in zip(clients, bodies):
            self.assertEqual(content(client.result()), self.right(body))
        self.at_rest(decode)

    def test_prefill_is_killed_and_nobody_is_left(self):
        prefill = self.prefill(SLOW)
        decode = self.decode(prefill, flags=(IMPATIENT,))
        self.there(decode, 1)
        client, _ = self.stopped_in_transfer(prefill, decode)
        prefill.kill()
        answer = client.result()
        self.assertEqual(answer.status, 503, answer.body)
        self.assertIn("prefill", answer.json()["error"]["message"])
        self.assertEqual(fleet.get(decode.port, "/readyz").status, 503)
        self.at_rest(decode)

    def test_prefill_stands_still_and_goes_on(self):
        first = self.prefill(SLOW)
        decode = self.decode(first, flags=(IMPATIENT,))
        self.there(decode, 1)
        client, body = self.stopped_in_transfer(first, decode)
        answer = self.check_right_or_error(client, body)
        self.assertEqual(answer.status, 503)  # there is nobody else
        # What it may still write to is kept until it says that it is done, however long that takes.
        self.assertGreater(decode.metrics()["baton_quarantined_pages"], 0)
        first.signal(signal.SIGCONT)
        self.at_rest(decode, first)
        body = request(self.prompt(300))
        self.wait_for(lambda: self.complete(decode, body).status == 200, "it is not ordered from again")
        self.assertEqual(content(self.complete(decode, body)), self.right(body))

    def test_prefill_stands_still_and_another_one_takes_over(self):
        first = self.prefill(SLOW)
        port = fleet.free_port()
        decode = self.decode(first, port, flags=(IMPATIENT,))
        self.there(decode, 1)
        client, body = self.stopped_in_transfer(first, decode)
        second = self.prefill(port=port)
        self.assertEqual(content(client.result()), self.right(body))
        self.assertGreater(decode.metrics()["baton_quarantined_pages"], 0)
        first.kill()
        self.at_rest(decode, second)  # nobody writes there any more

    def test_decode_stands_still(self):
        prefill = self.prefill(SLOW)
        decode = self.decode(prefill)
        self.there(decode, 1)
        body = request(self.prompt())
        client = self.begin(decode, body)
        self.wait_for(lambda: prefill.metrics()[WRITTEN] > 0, "nothing is written")
        decode.signal(signal.SIGSTOP)
        if "--transfer-backend=same-host" in self.flags:  # which needs nothing of the receiver
            self.wait_for(lambda: prefill.metrics()['baton_prefill_jobs_now{state="active"}'] == 0, "the prompt is not computed")
        decode.signal(signal.SIGCONT)
        self.assertEqual(content(client.result()), self.right(body))
        self.at_rest(decode, prefill)

    def test_decode_is_killed_and_comes_back(self):
        prefill = self.prefill(SLOW)
        port = fleet.free_port()
        decode = self.decode(prefill, port=port)
        for i in range(TIMES):
            self.there(decode, 1)
            client, _ = self.stopped_in_transfer(prefill, decode)
            decode.kill()
            prefill.signal(signal.SIGCONT)  # what it writes goes nowhere
            self.assertEqual(client.result().status, 0)
            decode = self.decode(prefill, port=port)
            self.there(decode, 1)
            body = request(self.prompt(200))
            self.assertEqual(content(self.complete(decode, body)), self.right(body))
            self.at_rest(decode, prefill)
        self.assertEqual(prefill.metrics()[GONE], TIMES)

    def test_decode_is_killed_behind_a_router(self):
        prefill = self.prefill(SLOW)
        decodes = [self.decode(), self.decode()]
        urls = [f"--decode=http://127.0.0.1:{d.port}" for d in decodes] + [f"--prefill=http://127.0.0.1:{prefill.port}"]
        router = harness.Server(*urls, command=[harness.BATON, "router", "--port=0", "--probe-interval-ms=50"])
        self.addCleanup(router.kill)
        self.ready(router, 2)  # it has told them of the prefill instance
        body = request(self.prompt())
        client = self.begin(router.port, body)
        found = []
        self.wait_for(lambda: found.extend(d for d in decodes if d.metrics()["baton_requests_total"]) or found, "not sent")
        one = found[0]
        other = next(d for d in decodes if d is not one)
        # Before the first byte: another instance answers.
        one.kill()
        self.assertEqual(content(client.result()), self.right(body))
        # In the middle of an answer: an error event ends it.
        long = request(self.prompt(100), tokens=4000, stream=True)
        client = self.begin(router.port, long)
        self.wait_for(lambda: other.metrics()["baton_engine_tokens_total"] > 12, "it does not begin")
        other.kill()
        answer = client.result()
        self.assertTrue(answer.status == 502 or answer.error_event() is not None, answer.body[-300:])
        self.ready(router, 0)
        self.assertEqual(self.complete(router, body).status, 503)
        self.at_rest(prefill)
        again = self.decode(port=other.port)
        self.ready(router, 1)
        self.assertEqual(content(self.complete(router, body)), self.right(body))
        self.at_rest(prefill, again)

    def test_the_router_names_who_is_ready(self):
        port = fleet.free_port()
        prefill = self.prefill(port=port)
        decode = self.decode(flags=(IMPATIENT,))
        urls = [f"--decode=http://127.0.0.1:{decode.port}", f"--prefill=http://127.0.0.1:{port}"]
        router = harness.Server(*urls, command=[harness.BATON, "router", "--port=0", "--probe-interval-ms=50"])
        self.addCleanup(router.kill)
        self.ready(router, 1)
        # What clients say of prefill instances is for nobody.
        body = request([65] * 100)
        self.assertEqual(self.complete(router, body, headers={"x-baton-prefill": "http://127.0.0.1:1"}).status, 200)
        self.assertEqual([p["url"] for p in self.info(decode)["peers"]], [f"http://127.0.0.1:{port}"])
        self.assertEqual(prefill.stop(), 0)
        self.ready(router, 0)
        self.assertEqual(self.complete(router, body).status, 503)
        self.prefill(port=port)
        self.ready(router, 1)
        self.assertEqual(content(self.complete(router, body)), self.right(body))

    def test_a_storm_of_clients_that_go(self):
        prefill = self.prefill("--max-num-batched-tokens=64")
        decode = self.decode(prefill)
        self.there(decode, 1)
        bodies = [request(self.prompt(self.chance.randrange(10, 1500)), tokens=64, stream=True) for _ in range(STORM)]
        clients = []
        for body in bodies:
            client = self.begin(decode, body)
            clients.append(client)
            if self.chance.random() < 0.7:  # at once, or some requests later
                gone = self.chance.choice(clients)
                self.wait_for(lambda gone=gone: gone.connection.sock is not None or gone.answer is not None, "not connected")
                try:
                    gone.connection.sock.shutdown(2)
                except (AttributeError, OSError):
                    pass  # it has its answer
        for client in clients:
            client.result()
        self.at_rest(decode, prefill)
        body = request(self.prompt(500))
        self.assertEqual(content(self.complete(decode, body)), self.right(body))


if __name__ == "__main__":
    unittest.main(verbosity=2)
