"""Starts servers as processes, and finds the official clients; without them the tests are skipped (exit code 77)."""
import atexit
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

try:
    import anthropic  # noqa: F401
    import openai
except ImportError:
    print("the official clients are not installed: scripts/setup clients puts them into build/clients")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATON = os.environ.get("BATON_PROGRAM", str(ROOT / "build/release/bin/baton"))
SCRIPTED = os.environ.get("BATON_SCRIPTED_SERVER", str(ROOT / "build/release/bin/scripted_server"))
_folder = tempfile.TemporaryDirectory(prefix="baton-model-")
MODEL = _folder.name


def compose_model():
    subprocess.run([sys.executable, str(ROOT / "tests/server/compose_model.py"), MODEL], check=True)


compose_model()


class Server:
    """A server on a free port. `scripted`: one whose model writes what the last user says."""

    def __init__(self, *flags, scripted=True, pace_us=0, environment=None, command=None):
        if command is not None:
            command = [*command, *flags]
        elif scripted:
            command = [SCRIPTED, MODEL, str(pace_us), "--port", "0", *flags]
        else:
            command = [BATON, "serve", "--model", MODEL, "--port", "0", "--served-model-name", "small", *flags]
        self.log = []
        self._ready = threading.Event()
        self.port = None
        self.started = time.monotonic()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        atexit.register(self.kill)
        if not self._ready.wait(60) or self.port is None:
            self.kill()
            raise RuntimeError("the server did not start:\n" + "".join(map(str, self.log)))
        self.ready_after = time.monotonic() - self.started
        self.url = f"http://127.0.0.1:{self.port}"

    def _read_log(self):
        for line in self.process.stderr:
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"message": line}
            self.log.append(entry)
            if entry.get("message") == "ready":
                self.port = entry["port"]
                self._ready.set()
        self._ready.set()

    def openai(self, key="none", **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=60, **options)

    def anthropic(self, key="none", **options):
        return anthropic.Anthropic(base_url=self.url, api_key=key, max_retries=0, timeout=60, **options)

    def metrics(self):
        import urllib.request
        text = urllib.request.urlopen(self.url + "/metrics", timeout=10).read().decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line and not line.startswith("#")}

    def requests(self, least=1, seconds=30):
        """What was logged of requests, once there are so many."""
        deadline = time.monotonic() + seconds
        while True:
            found = [e for e in self.log if e.get("message") == "request"]
            if len(found) >= least or time.monotonic() > deadline:
                return found
            time.sleep(0.01)

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def stop(self, seconds=40):
        """Ends it as an operator does; its exit code."""
        if self.process.poll() is None:
            self.signal()
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class PatientTest(unittest.TestCase):
    def wait_for(self, condition, what, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return
            time.sleep(0.02)
        self.fail(what)


class ServerTest(PatientTest):
    """A test class with one server for all of its tests; it has to end cleanly."""

    flags = ()
    scripted = True
    pace_us = 0

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags, scripted=cls.scripted, pace_us=cls.pace_us)
        cls.client = cls.server.openai()
        cls.model = "scripted" if cls.scripted else "small"

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        if code != 0:
            raise AssertionError(f"the server ended with {code}: {cls.server.log[-5:]}")

    def wait_until_idle(self, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            m = self.server.metrics()
            if m["baton_requests_open"] == 0 and m["baton_sequences_running"] == 0 and m["baton_sequences_waiting"] == 0:
                return
            time.sleep(0.02)
        self.fail(f"not idle: {m}")

    def say(self, text, **options):
        """A chat whose answer is `text`, as the model writes it."""
        return self.client.chat.completions.create(model=self.model, messages=[{"role": "user", "content": text}], **options)


def main():
    unittest.main(verbosity=1)
