#!/usr/bin/env python3
"""Faults of real processes: whatever happens, a client gets a right answer or an error, never a short one."""
import os
import random
import signal
import socket
import time

import fleet
import harness

LONG = "#repeat 300 abcdef "  # four seconds at PACE: what is ended in the middle
SHORT = "#repeat 60 abcdef "  # not a second: what is waited for
PACE = 2000
STORM = int(os.environ.get("BATON_STORM", "1000"))


class Faults(fleet.FleetTest):
    def expected(self, server, text):
        answer = fleet.ask(server.port, fleet.chat(text)).text()
        self.assertIsNotNone(answer)
        return answer

    def begun(self, client):
        self.assertTrue(client.begun.wait(20), "the stream does not begin")

    def pair(self, *flags, pace_us=PACE):
        """Two instances of which only the first is there at the beginning, so that requests run there. The second is quick."""
        first = self.instance(pace_us=pace_us)
        port = fleet.free_port()
        router = self.router(first, port, flags=flags)
        self.ready(router, 1)

        def second():
            server = self.instance("--port", str(port))
            self.wait_for(lambda: self.at(router, server, "ready") == 1, "the second is not ready")
            return server
        return router, first, second

    def test_killed_before_the_first_byte(self):
        router, first, second = self.pair("--silence-timeout-ms=60000")
        first.signal(signal.SIGSTOP)
        clients = [fleet.Client(router.port, fleet.chat("a</think>b", stream=stream)) for stream in (True, False)]
        self.wait_for(lambda: self.at(router, first, "requests_open") == 2, "not sent")
        other = second()
        first.kill()
        for client in clients:
            answer = client.result()
            self.assertEqual(answer.text(), "a|b", answer.body)
            self.assertEqual(answer.headers["x-baton-instance"], f"127.0.0.1:{other.port}")
        self.idle(router, other)

    def test_killed_in_the_middle(self):
        router, first, second = self.pair()
        stream = fleet.Client(router.port, fleet.chat(LONG, stream=True))
        anthropic = fleet.Client(router.port, fleet.chat(LONG, stream=True), path="/v1/messages")
        whole = fleet.Client(router.port, fleet.chat(LONG))
        self.begun(stream)
        self.begun(anthropic)
        self.wait_for(lambda: self.at(router, first, "requests_open") == 3, "not sent")
        other = second()
        first.kill()
        error = stream.result().error_event()
        self.assertEqual(error["code"], "broken_off", stream.answer.body[-300:])
        self.assertEqual(anthropic.result().error_event()["type"], "api_error")
        self.assertIn(b"event: error\n", anthropic.answer.body)
        # Of a whole answer the client had nothing yet.
        self.assertEqual(whole.result().text(), self.expected(other, LONG))
        self.idle(router, other)
        self.assertEqual(router.metrics()["baton_router_streams_broken_total"], 2)

    def test_killed_and_nobody_else(self):
        server = self.instance(pace_us=PACE)
        router = self.router(server)
        self.ready(router, 1)
        whole = fleet.Client(router.port, fleet.chat(LONG))
        self.wait_for(lambda: self.at(router, server, "requests_open") == 1, "not sent")
        server.kill()
        self.assertEqual(whole.result().status, 502)
        self.assertEqual(whole.answer.json()["error"]["code"], "no_answer")
        self.ready(router, 0)
        answer = fleet.ask(router.port, fleet.chat("a"))
        self.assertEqual(answer.status, 503)
        self.assertEqual(answer.headers["retry-after"], "1")
        self.assertEqual(fleet.get(router.port, "/readyz").status, 503)
        # Another process on the same port is an instance like any other.
        again = self.instance("--port", str(server.port))
        self.ready(router, 1)
        self.assertEqual(fleet.ask(router.port, fleet.chat("a</think>b")).text(), "a|b")
        self.idle(router, again)

    def test_stopped_for_a_while(self):
        router, first, second = self.pair("--silence-timeout-ms=1500", "--probe-timeout-ms=400")
        stream = fleet.Client(router.port, fleet.chat(LONG, stream=True))
        whole = fleet.Client(router.port, fleet.chat(LONG))
        self.begun(stream)
        self.wait_for(lambda: self.at(router, first, "requests_open") == 2, "not sent")
        other = second()
        first.signal(signal.SIGSTOP)
        self.assertIn("silent", stream.result().error_event()["message"])
        self.assertEqual(whole.result().text(), self.expected(other, LONG))
        # Nobody else is sent there meanwhile.
        self.assertEqual(fleet.ask(router.port, fleet.chat("a</think>b")).text(), "a|b")
        first.signal(signal.SIGCONT)
        self.ready(router, 2)
        self.idle(router, first, other)

    def test_an_instance_that_drains(self):
        router, first, second = self.pair()
        stream = fleet.Client(router.port, fleet.chat(SHORT, stream=True))
        self.begun(stream)
        other = second()
        first.signal()
        self.wait_for(lambda: self.at(router, first, "ready") == 0, "still ready")
        self.assertEqual(fleet.ask(router.port, fleet.chat("a</think>b")).text(), "a|b")
        self.assertEqual(stream.result().text(), self.expected(other, SHORT))
        self.assertEqual(first.process.wait(20), 0)
        self.idle(router, other)

    def test_a_router_that_ends(self):
        server = self.instance(pace_us=PACE)
        router = self.router(server)
        self.ready(router, 1)
        stream = fleet.Client(router.port, fleet.chat(SHORT, stream=True))
        self.begun(stream)
        router.signal()
        self.assertIsNotNone(stream.result().text())
        self.assertEqual(router.process.wait(20), 0)
        # A second signal, and a kill.
        router = self.router(server)
        self.ready(router, 1)
        stream = fleet.Client(router.port, fleet.chat(LONG * 4, stream=True))
        self.begun(stream)
        router.signal()
        self.wait_for(lambda: any("ending" in e.get("message", "") for e in router.log), "not ending")
        router.signal()
        self.assertIn("ending", stream.result().error_event()["message"])
        self.assertEqual(router.process.wait(20), 1)
        router = self.router(server)
        self.ready(router, 1)
        stream = fleet.Client(router.port, fleet.chat(LONG * 4, stream=True))
        self.begun(stream)
        router.kill()
        self.assertNotEqual(stream.result().broken, "")
        router = self.router(server)
        self.ready(router, 1)
        self.idle(router, server)
        self.assertEqual(fleet.ask(router.port, fleet.chat("a</think>b")).text(), "a|b")

    def test_a_router_that_sleeps_blames_nobody(self):
        server = self.instance(pace_us=PACE)
        router = self.router(server, flags=("--silence-timeout-ms=400", "--probe-timeout-ms=100"))
        self.ready(router, 1)
        stream = fleet.Client(router.port, fleet.chat(SHORT, stream=True))
        self.begun(stream)
        router.signal(signal.SIGSTOP)
        time.sleep(1.5)
        router.signal(signal.SIGCONT)
        self.assertIsNotNone(stream.result().text())
        self.idle(router, server)

    def test_a_slow_reader_holds_its_instance_back(self):
        # At a pace: what comes at once comes as one event, which may be longer than the router's bound.
        server = self.instance("--max-stream-bytes", str(64 << 20), "--max-num-seqs", "8", pace_us=200)
        router = self.router(server)
        self.ready(router, 1)
        body = fleet.chat("#repeat 1000 abcdef ", stream=True, logprobs=True, top_logprobs=20)
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.settimeout(120)
            slow.connect(("127.0.0.1", router.port))
            text = fleet.json.dumps(body).encode()
            slow.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (fleet.CHAT.encode(), len(text), text))
            self.wait_for(lambda: router.metrics()["baton_router_held_back_total"] > 0, "not held back", 30)
            self.assertEqual(fleet.ask(router.port, fleet.chat("a</think>b", stream=True)).text(), "a|b")
            got = b""
            while b"data: [DONE]\n\n" not in got[-200:]:
                part = slow.recv(1 << 16)
                self.assertTrue(part, got[-300:])
                got += part
        self.assertGreater(len(got), 4 << 20)
        self.idle(router, server)

    def test_long_events_wait_for_a_slow_reader(self):
        # Each fits the router's bound of 4 MiB, not together with what may wait before it.
        events = [b"data: %s\n\n" % (b"x" * size) for size in (700 << 10, 3500 << 10)] * 6 + [b"data: [DONE]\n\n"]
        instance = fleet.PlayedInstance(events)
        self.addCleanup(instance.close)
        router = self.router(instance)
        self.ready(router, 1)
        text = fleet.json.dumps(fleet.chat("a", stream=True)).encode()
        got = []
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.settimeout(60)
            slow.connect(("127.0.0.1", router.port))
            slow.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
                         % (fleet.CHAT.encode(), len(text), text))
            self.wait_for(lambda: router.metrics()["baton_router_held_back_total"] > 0, "not held back", 30)
            while part := slow.recv(1 << 16):
                got.append(part)
                time.sleep(0.0005)
        got = b"".join(got)
        self.assertEqual(got.count(b"data: "), len(events))
        self.assertTrue(got.endswith(b"\r\n0\r\n\r\n"), got[-100:])
        self.assertGreater(len(got), sum(map(len, events)))
        self.idle(router)

    def test_a_storm_of_clients_that_go(self):
        seed = int(os.environ.get("BATON_SEED", random.randrange(1 << 32)))
        print(f"BATON_SEED={seed}")
        choose = random.Random(seed)
        servers = [self.instance("--max-num-seqs", "8", "--max-queued-requests", "4", pace_us=300) for _ in range(2)]
        router = self.router(*servers)
        self.ready(router, 2)
        waiting = []
        for _ in range(STORM):
            text = fleet.json.dumps(fleet.chat(LONG, stream=choose.random() < 0.5)).encode()
            s = socket.create_connection(("127.0.0.1", router.port))
            s.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (fleet.CHAT.encode(), len(text), text))
            waiting.append(s)
            while waiting and choose.random() < 0.5:
                waiting.pop(choose.randrange(len(waiting))).close()
            if len(waiting) > 24:
                time.sleep(choose.random() * 0.02)
                waiting.pop(0).close()
        for s in waiting:
            s.close()
        self.idle(router, *servers)
        self.assertEqual(fleet.ask(router.port, fleet.chat("a</think>b")).text(), "a|b")
        self.assertGreater(router.metrics()['baton_router_requests_ended_total{how="client_gone"}'], 0)


if __name__ == "__main__":
    harness.main()
