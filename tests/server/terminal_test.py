#!/usr/bin/env python3
"""`baton chat` as people and scripts use it, and what `baton completion` makes shells complete."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
            os.execv(command[0], command)
        self.seen = ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, pattern, seconds=20):
        """Until the pattern has been printed; what was printed until its end is forgotten."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            if not select.select([self.fd], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise AssertionError(f"{pattern!r} never came: {self.seen[-500:]!r}")
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended without {pattern!r}: {self.seen!r}") from None
        printed, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return printed

    def end(self, seconds=10, key=""):
        """The exit code; negative for a signal. `key` is pressed until it is heard: a terminal that changes its mode may drop it."""
        deadline, press_at = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            if key and time.monotonic() >= press_at:
                self.type(key)
                press_at = time.monotonic() + 1
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.02)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    time.sleep(0.02)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("it does not end")


class Chat(harness.ServerTest):
    pace_us = 2000

    def chat(self, *arguments, lines=""):
        url = () if "--base-url" in arguments else ("--base-url", self.server.url)
        command = [harness.BATON, "chat", *url, *arguments]
        return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60)

    def test_one_question(self):
        done = self.chat("I think.</think>Hello, 日本.\nBye.")
        self.assertEqual((done.returncode, done.stdout), (0, "Hello, 日本.\nBye.\n"))
        self.assertEqual(done.stderr.strip(), "I think.")
        self.assertEqual(self.chat("--no-reasoning", "I", "think.</think>Hello").stderr, "")

    def test_a_conversation_in_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/talk with spaces.json"
            done = self.chat("--system", "Be brief.", lines=f"a</think>one\nb</think>two\\\nlines\n/again\n/save {file}\n")
            self.assertEqual((done.returncode, done.stdout), (0, "one\ntwo\nlines\ntwo\nlines\n"))
            saved = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["messages"]
            self.assertEqual([m["role"] for m in saved], ["system", "user", "assistant", "user", "assistant"])
            self.assertEqual([m["content"] for m in saved][2::2], ["one", "two\nlines"])
            answer = self.client.chat.completions.create(model=self.model, messages=[*saved, {"role": "user", "content": "c</think>three"}])
            self.assertEqual(answer.choices[0].message.content, "three")
            again = self.chat(lines=f"/load {file}\n/reset\n/system\nd</think>four\n/quit\nnever asked\n")
            self.assertEqual((again.returncode, again.stdout), (0, "four\n"))

    def test_fields(self):
        done = self.chat("--set", "max_completion_tokens=6", lines="a</think>0123456789\n/set max_completion_tokens\na</think>0123456789\n")
        self.assertEqual(done.stdout, "0123\n0123456789\n")
        self.assertIn("stop", self.chat("--set", "stop=34", "a</think>0123456789").stderr, "34 is a number")
        self.assertEqual(self.chat("--set", 'stop="34"', "a</think>0123456789").stdout, "012\n")

    def test_failures_are_one_line(self):
        for arguments, lines, part in ((("--set", "temperature=999", "hello"), "", "temperature"),
                                       (("#fail 3 hello world",), "", "device failed"),
                                       ((), "/nonsense\n", "/help"),
                                       ((), "/again\n", "no answer"),
                                       ((), "/load /nowhere/at.all\n", "/nowhere/at.all"),
                                       (("--set", "messages=1", "x"), "", "cannot be set"),
                                       (("--base-url", "http://127.0.0.1:9", "x"), "", "127.0.0.1:9"),
                                       (("--base-url", "nothing at all", "x"), "", "nothing at all")):
            done = self.chat(*arguments, lines=lines)
            message = done.stderr.splitlines()[-1]
            self.assertEqual(done.returncode, 1, (arguments, lines, done))
            self.assertTrue(message.startswith("baton: ") and part in message, message)

    def test_keys(self):
        server = harness.Server("--api-key", "secret")
        command = [harness.BATON, "chat", "--base-url", server.url, "a</think>b"]
        without = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "OPENAI_API_KEY": ""})
        self.assertEqual(without.returncode, 1)
        self.assertIn("key", without.stderr)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "OPENAI_API_KEY": "secret"})
        self.assertEqual(done.stdout, "b\n")
        self.assertEqual(server.stop(), 0)

    def test_on_a_terminal(self):
        terminal = Terminal(harness.BATON, "chat", "--base-url", self.server.url)
        terminal.wait_for("> ")
        terminal.type("Hm.</think>Yes, é.\n")
        printed = terminal.wait_for(r"\[\d+ tokens in.*out.*\]")
        self.assertIn("\x1b[2mH", printed)
        terminal.wait_for("> ")
        terminal.type("#repeat 100000 abcd \n")
        terminal.wait_for("abcd abcd abcd")
        os.kill(terminal.pid, signal.SIGINT)
        terminal.wait_for(r"\[stopped\]")
        self.wait_until_idle()
        terminal.wait_for("> ")
        terminal.type("/bad\n")
        terminal.wait_for("baton: /bad is no command")
        terminal.wait_for("> ")
        terminal.type("still</think>here\n")
        terminal.wait_for("here\r\n")
        terminal.wait_for("> ")
        # Ctrl-D typed while the line editor takes over the terminal becomes a character of the line; Ctrl-U takes that away.
        self.assertEqual(terminal.end(key="\x15\x04"), 0)

    def test_answers_cannot_control_the_terminal(self):
        terminal = Terminal(harness.BATON, "chat", "--base-url", self.server.url, "a</think>x\x1b]0;title\x07y\x9bz")
        self.assertIn("x?]0;title?y?z", terminal.wait_for("z\r\n"))
        self.assertEqual(terminal.end(), 0)


class Completion(unittest.TestCase):
    def script(self, shell):
        return subprocess.run([harness.BATON, "completion", shell], capture_output=True, text=True, check=True).stdout

    def complete(self, *words):
        """What bash offers for the last of the words."""
        listing = " ".join("'" + w + "'" for w in ("baton", *words))
        program = f'{self.script("bash")}\nCOMP_WORDS=({listing}); COMP_CWORD={len(words)}; _baton; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_bash(self):
        self.assertEqual(self.complete("ser"), ["serve"])
        self.assertIn("completion", self.complete(""))
        self.assertEqual(self.complete("serve", "--max-num-s"), ["--max-num-seqs"])
        self.assertEqual(self.complete("serve", "--port", "1", "--no-web"), ["--no-web-page", "--no-webui"])
        self.assertEqual(self.complete("serve", "--isa", "avx"), ["avx2", "avx512"])
        self.assertEqual(self.complete("serve", "--model", ""), [])  # files, which bash completes
        self.assertEqual(self.complete("config", "du"), ["dump"])
        self.assertEqual(self.complete("config", "dump", "--ori"), ["--origin"])
        self.assertEqual(self.complete("generate", "--dtype", "b"), ["bfloat16"])

    def test_other_shells_take_their_script(self):
        for shell in ("zsh", "fish"):
            script = self.script(shell)
            self.assertIn("max-num-seqs", script)
            if shutil.which(shell):
                done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_another_shell_is_wrong_usage(self):
        self.assertEqual(subprocess.run([harness.BATON, "completion", "sh"], capture_output=True).returncode, 2)


if __name__ == "__main__":
    harness.main()
