"""Routers and instances as processes, and clients that see every byte."""
import ctypes
import http.client
import http.server
import json
import os
import pathlib
import socket
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
import harness  # noqa: E402

CHAT = "/v1/chat/completions"


def may_write_into_others():
    """Whether the system lets processes of a user write into each other, as --transfer-backend same-host does."""
    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]
    there = ctypes.create_string_buffer(b"x", 1)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(0x59616D61, ctypes.c_ulong(2 ** 64 - 1), 0, 0, 0)  # PR_SET_PTRACER, PR_SET_PTRACER_ANY
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        here = ctypes.create_string_buffer(b"y", 1)
        mine, theirs = Piece(ctypes.addressof(here), 1), Piece(ctypes.addressof(there), 1)
        done = libc.process_vm_writev(parent, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
        os._exit(0 if done == 1 else 1)
    return os.waitpid(child, 0)[1] == 0 and there.raw == b"y"


def free_port():
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def chat(text, **options):
    return {**{"model": "scripted", "max_tokens": 6000}, "messages": [{"role": "user", "content": text}], **options}


class Answer:
    """One answer as it came. `broken`: it did not end as HTTP says."""

    def __init__(self, response=None, body=b"", broken=""):
        self.status = response.status if response else 0
        self.headers = response.headers if response else {}
        self.body, self.broken = body, broken

    def json(self):
        return json.loads(self.body)

    def events(self):
        return [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]

    def text(self):
        """Reasoning and content, of a stream or whole; None if the answer says that it is none, or is not whole."""
        if self.status != 200 or self.broken:
            return None
        if not self.headers["content-type"].startswith("text/event-stream"):
            message = self.json()["choices"][0]["message"]
            return (message.get("reasoning_content") or "") + "|" + (message.get("content") or "")
        events = self.events()
        if events[-1] != "[DONE]":
            return None
        parts = {"reasoning_content": "", "content": ""}
        for event in map(json.loads, events[:-1]):
            for choice in event["choices"]:
                for name in parts:
                    parts[name] += choice["delta"].get(name) or ""
        return parts["reasoning_content"] + "|" + parts["content"]

    def error_event(self):
        """The error that ends a stream, with everything as HTTP wants it; None if there is none."""
        events = self.events()
        if self.broken or not events or "[DONE]" in events:
            return None
        last = json.loads(events[-1])
        return last.get("error")


class Client(threading.Thread):
    """One request, read in the background. `begun` is set when a first event with text has come."""

    def __init__(self, port, body, path=CHAT, headers=None):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.request = ("POST", path, json.dumps(body), {"content-type": "application/json", **(headers or {})})
        self.begun = threading.Event()
        self.answer = None
        self.start()

    def run(self):
        body, response = b"", None
        try:
            self.connection.request(*self.request)
            response = self.connection.getresponse()
            while part := response.read1(65536):
                body += part
                if b'content":"a' in body or b"_delta" in body:
                    self.begun.set()
            self.answer = Answer(response, body)
        except (OSError, http.client.HTTPException) as e:
            self.answer = Answer(response, body, f"{type(e).__name__}: {e}")
        self.connection.close()

    def result(self, seconds=60):
        self.join(seconds)
        if self.answer is None:
            raise AssertionError("no answer in time")
        return self.answer


def ask(port, body, **options):
    return Client(port, body, **options).result()


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    answer = Answer(response, response.read())
    connection.close()
    return answer


class PlayedInstance:
    """An instance that answers every chat with the given events, as fast as they are taken."""

    def __init__(self, events):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    for event in events:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    self.close_connection = True

            def log_message(self, *_):
                pass
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class FleetTest(harness.PatientTest):
    def instance(self, *flags, **options):
        server = harness.Server(*flags, **options)
        self.addCleanup(server.kill)
        return server

    def router(self, *instances, flags=()):
        urls = [f"--unified=http://127.0.0.1:{i if isinstance(i, int) else i.port}" for i in instances]
        router = harness.Server(*urls, *flags, command=[harness.BATON, "router", "--port=0", "--probe-interval-ms=50"])
        self.addCleanup(router.kill)
        return router

    def ready(self, router, count):
        self.wait_for(lambda: router.metrics()["baton_router_instances_ready"] == count, f"not {count} ready: {router.log[-5:]}", 20)

    def at(self, router, server, what):
        return router.metrics()[f'baton_router_instance_{what}{{instance="http://127.0.0.1:{server.port}"}}']

    def idle(self, router, *servers):
        """Nothing is under way anywhere."""
        def is_idle():
            m = router.metrics()
            return m["baton_router_requests_open"] == 0 and m["baton_router_held_bytes"] == 0 and all(
                value == 0 for name, value in m.items() if name.startswith("baton_router_instance_requests_open"))
        self.wait_for(is_idle, "the router is not idle", 20)
        for server in servers:
            def quiet(server=server):
                m = server.metrics()
                return m["baton_requests_open"] == 0 and m["baton_sequences_running"] == 0 and m["baton_sequences_waiting"] == 0
            self.wait_for(quiet, "an instance is not idle", 20)
