#!/usr/bin/env python3
"""The web page in a browser. Not part of `make test`, since Chromium is large; `make browser` installs it and runs this.

tests/server/browser_check.py [--pictures FOLDER]   also writes what it saw
"""
import concurrent.futures
import json
import pathlib
import random
import sys
import unittest

import browser
import harness
from chat_test import CALL, TOOLS

PICTURES = None
ANSWERS = "[...document.querySelectorAll('.message.assistant')]"


class Page(harness.ServerTest):
    pace_us = 5000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        super().tearDownClass()

    def setUp(self):
        self.page.look(1200, 800)
        self.page.open(self.server.url + "/#chat")
        self.page.run("localStorage.clear(); sessionStorage.clear()")
        self.page.open(self.server.url + "/")
        self.page.wait("document.getElementById('model').textContent === 'scripted'")
        self.page.log()

    def tearDown(self):
        self.assertEqual([line for line in self.page.log() if "status of 4" not in line], [])  # errors that a test asked for

    def set(self, **values):
        for name, value in values.items():
            self.page.fill(f"#setting-{name}", value)

    def ask(self, text, wait=True):
        before = self.page.run(f"return {ANSWERS}.length")
        self.page.fill("#prompt", text)
        self.page.click("#send")
        if wait:
            self.page.wait(f"{ANSWERS}.length === {before + 1} && !{ANSWERS}.at(-1).querySelector('.foot').hidden")

    def last(self, selector, what="textContent"):
        return self.page.run(f"const e = {ANSWERS}.at(-1).querySelector(arguments[0]); return e && e.{what}", selector)

    def picture(self, name):
        if PICTURES:
            self.page.picture(PICTURES / name)

    def test_an_answer_is_text_and_never_markup(self):
        evil = '<img src=x onerror="document.title=1"><script>document.title=2</script> [x](javascript:alert(1)) &amp;'
        self.ask(f"Let me think: {evil}</think># A title\n\n**Bold**, *leaning*, `code` and {evil}\n\n- one\n- two\n  - inner\n\n"
                 "| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx = '<b>'\n```\n\n[a link](https://example.org/) end")
        self.assertEqual(self.last(".reasoning div"), f"Let me think: {evil}")
        self.assertFalse(self.last(".reasoning", "open"))
        self.assertEqual([self.last(".text " + s) for s in ("h1", "strong", "em", "p code", "li li", "td", "pre code")],
                         ["A title", "Bold", "leaning", "code", "inner", "1", "x = '<b>'"])
        self.assertIn(evil, self.last(".text"))
        self.assertEqual(self.page.run("return document.querySelectorAll('.message img, .message script').length"), 0)
        links = self.page.run(f"return [...{ANSWERS}.at(-1).querySelectorAll('a')].map((a) => [a.href, a.rel])")
        self.assertEqual(links, [["https://example.org/", "noopener noreferrer"]])
        self.assertIn("tokens in", self.last(".foot"))
        self.assertIn("tokens/s", self.last(".foot"))

    def test_enter_sends_and_stop_stops(self):
        self.page.press("#prompt", "#repeat 5000 abcd ")
        self.page.press("#prompt", "\ue007")
        self.page.wait(f"{ANSWERS}.length === 1 && {ANSWERS}[0].querySelector('.reasoning div').textContent.length > 40")
        self.page.click("#stop")
        self.page.wait("!document.getElementById('send').hidden")
        self.assertIn("stopped", self.last(".foot"))
        self.wait_until_idle()
        self.ask("Again</think>and whole.")
        self.assertEqual(self.last(".text"), "and whole.")

    def test_a_long_answer_streams_and_stays_in_view(self):
        self.ask("a</think>#" + "line of an answer\n\n" * 60)
        box = self.page.run("const b = document.getElementById('messages'); return b.scrollHeight - b.scrollTop - b.clientHeight")
        self.assertLess(box, 100)

    def test_calls_are_shown_and_their_results_go_back(self):
        self.set(tools=str(TOOLS).replace("'", '"'))
        self.ask("Look.</think>I ask." + CALL)
        self.assertEqual(self.last(".call b"), "weather")
        self.assertIn('"city": "Paris"', self.last(".call pre"))
        self.page.fill(".message form textarea", "rain")
        self.page.click(".message form button")
        self.page.wait(f"{ANSWERS}.length === 2 && !{ANSWERS}[1].querySelector('.foot').hidden")
        self.assertEqual(self.page.run("return document.querySelector('.message.tool').textContent"), "rain")
        self.assertTrue(self.last(".notice", "hidden"))

    def test_what_goes_wrong_is_said(self):
        self.set(max_completion_tokens="10000000")
        self.ask("hello")
        self.assertIn("context", self.last(".notice"))
        self.set(max_completion_tokens="", tools="[{")
        self.ask("hello")
        self.assertIn("Tools", self.last(".notice"))
        self.set(tools="")
        self.ask("#fail 5 hello world")
        self.assertIn("device failed", self.last(".notice"))
        self.page.run(f"{ANSWERS}.at(-1).querySelector('.foot button:last-child').click()")
        self.page.wait("!document.getElementById('send').hidden")
        self.assertEqual(self.page.run(f"return {ANSWERS}.length"), 3)

    def test_settings_and_the_conversation_outlive_a_reload(self):
        self.set(temperature="0.5", max_completion_tokens="6", system="Be brief.")
        self.ask("a</think>0123456789")
        self.assertEqual(self.last(".text"), "0123")
        self.page.open(self.server.url + "/")
        self.page.wait(f"{ANSWERS}.length === 1")
        self.assertEqual(self.last(".text"), "0123")
        self.assertEqual(self.page.run("return document.getElementById('setting-temperature').value"), "0.5")
        self.page.click("#new")
        self.assertEqual(self.page.run(f"return {ANSWERS}.length"), 0)

    def test_metrics_are_drawn(self):
        self.ask("a</think>" + "words of an answer " * 30)
        self.page.open(self.server.url + "/#metrics")
        self.page.wait("document.querySelectorAll('.tile b').length >= 6")
        self.page.wait("document.querySelector('.tile:nth-child(2) b').textContent !== '–'")
        for _ in range(2):
            self.say("a</think>" + "words of an answer " * 20)
        self.page.wait("document.querySelectorAll('.plot rect').length > 3")
        self.page.wait("document.querySelectorAll('.plot path.line-1').length >= 3")
        self.assertRegex(self.page.run("return document.querySelector('.tile:nth-child(4) b').textContent"), r"\d+(\.\d+)? (ms|µs|s)")

    def test_a_phone_has_no_sideways_scrolling(self):
        self.page.look(360, 740)
        self.ask("a</think>A paragraph with" + "averylongword" * 20 + "\n\n```\n" + "code " * 60 + "\n```\n\n| a | b |\n|---|---|\n| "
                 + "cell " * 40 + " | 2 |")
        for view in ("#chat", "#metrics"):
            self.page.run("location.hash = arguments[0]", view)
            self.page.wait("!document.querySelector(location.hash).hidden")
            self.assertLessEqual(self.page.run("return document.documentElement.scrollWidth"), 360, view)
        self.page.run("location.hash = '#chat'")
        self.page.click("#show-settings")
        self.assertLessEqual(self.page.run("return document.documentElement.scrollWidth"), 360)

    def test_pictures(self):
        if not PICTURES:
            self.skipTest("no --pictures")
        # A conversation as the page keeps it, since the scripted model can only repeat what it is told.
        def answer(reasoning, content, usage):
            return {"role": "assistant", "content": content, "reasoning": reasoning, "calls": [], "finish": "stop",
                    "usage": usage, "times": {"begin": 0, "first": 61, "thought": 1400, "end": 2900}}

        self.page.run("sessionStorage.setItem('baton.messages', arguments[0])", json.dumps([
            {"role": "user", "content": "Name three colours that go well together."},
            answer("Three of them should do.", "Three that go well together:\n\n1. **Pine green**, `#2f6f62`\n2. **Ochre**, `#c0792a`\n"
                   "3. **Slate blue**, `#6b7fb3`\n\nAs a style sheet:\n\n```css\n:root { --first: #2f6f62; --second: #c0792a; }\n```",
                   {"prompt_tokens": 21, "completion_tokens": 140}),
            {"role": "user", "content": "And for text?"},
            answer("They may want more contrast.", "Take *ink* for text, and keep the three for what stands out.",
                   {"prompt_tokens": 171, "completion_tokens": 43, "prompt_tokens_details": {"cached_tokens": 128}})]))
        self.page.open(self.server.url + "/")
        self.page.wait(f"{ANSWERS}.length === 2")
        self.page.click("#show-settings")
        self.picture("page-chat.png")
        self.page.look(1200, 800, dark=True)
        self.picture("page-chat-dark.png")
        self.page.click("#hide-settings")
        self.page.look(390, 780)
        self.picture("page-chat-phone.png")
        self.page.look(1200, 800)
        self.page.open(self.server.url + "/#metrics")
        random.seed(3)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            list(pool.map(lambda i: self.say("a</think>" + "words " * random.randrange(20, 120)), range(60)))
        self.picture("page-metrics.png")
        self.page.look(1200, 800, dark=True)
        self.picture("page-metrics-dark.png")


class Keys(harness.ServerTest):
    flags = ("--api-key", "secret")

    def test_a_key_is_asked_for_and_used(self):
        page = browser.Browser()
        self.addCleanup(page.close)
        page.open(self.server.url + "/")
        page.wait("document.getElementById('model').textContent.includes('key')")
        page.fill("#setting-key", "secret")
        page.wait("document.getElementById('model').textContent === 'scripted'")
        page.fill("#prompt", "a</think>b")
        page.click("#send")
        page.wait("document.querySelector('.message.assistant .text')?.textContent === 'b'")
        self.assertEqual(page.run("return JSON.stringify(localStorage)").count("secret"), 0)


if __name__ == "__main__":
    if not browser.is_there():
        print("no chromium and chromedriver here: scripts/setup browser installs them")
        sys.exit(77)
    if "--pictures" in sys.argv:
        at = sys.argv.index("--pictures")
        PICTURES = pathlib.Path(sys.argv[at + 1])
        PICTURES.mkdir(parents=True, exist_ok=True)
        del sys.argv[at:at + 2]
    unittest.main(verbosity=1)
