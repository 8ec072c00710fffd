#!/usr/bin/env python3
"""The web page as the server hands it out: complete, from nowhere else, under a strict policy. What it does, browser_check.py shows."""
import http.client
import re
import shutil
import subprocess
import tempfile
import unittest

import harness

FOLDER = harness.ROOT / "src/server/page"


def get(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


class Page(harness.ServerTest):
    flags = ("--api-key", "secret")

    def test_every_file_is_served_as_it_is_and_named_somewhere(self):
        files = {f.name: f.read_text(encoding="utf-8") for f in FOLDER.iterdir()}
        for name, text in files.items():
            answer, body = get(self.server, "/" if name == "index.html" else f"/page/{name}")
            self.assertEqual(answer.status, 200, name)
            self.assertEqual(body, text, name)
            kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
            self.assertTrue(answer.headers["content-type"].startswith(kinds[name.rsplit(".", 1)[1]]), name)
            if name != "index.html":
                self.assertTrue(any(name in other for n, other in files.items() if n != name), f"nothing names {name}")
        self.assertEqual(get(self.server, "/page/other.js")[0].status, 404)
        self.assertEqual(get(self.server, "/page/")[0].status, 404)
        self.assertEqual(get(self.server, "/other")[0].status, 404)

    def test_policy(self):
        for path in ("/", "/page/main.js"):
            headers = get(self.server, path)[0].headers
            policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
            self.assertEqual(policy["default-src"], "'none'")
            self.assertEqual({policy[k] for k in ("script-src", "style-src", "img-src", "connect-src")}, {"'self'"})
            self.assertEqual({policy[k] for k in ("base-uri", "form-action", "frame-ancestors")}, {"'none'"})
            self.assertEqual(headers["x-content-type-options"], "nosniff")

    def test_nothing_from_elsewhere_and_no_text_as_markup(self):
        for file in FOLDER.iterdir():
            text = file.read_text(encoding="utf-8")
            addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*", text)) - {"http://www.w3.org/2000/svg"}
            self.assertEqual(addresses, set(), file.name)
            for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function", "javascript:", " style="):
                self.assertNotIn(word, text, file.name)
            self.assertIsNone(re.search(r"<script(?![^>]*\bsrc=)", text), file.name)

    def test_scripts_are_javascript(self):
        if shutil.which("node") is None:
            self.skipTest("node is not installed")
        with tempfile.TemporaryDirectory() as folder:
            for file in FOLDER.glob("*.js"):
                module = f"{folder}/{file.stem}.mjs"  # node takes .js for scripts, where import is wrong
                shutil.copyfile(file, module)
                checked = subprocess.run(["node", "--check", module], stderr=subprocess.PIPE, text=True)
                self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_what_the_page_reads_is_in_the_metrics(self):
        names = set(re.findall(r"\bbaton_\w+", (FOLDER / "metrics.js").read_text(encoding="utf-8")))
        text = get(self.server, "/metrics")[1]
        optional = {n for n in names if "_spec_" in n}  # only where the server drafts
        self.assertEqual({n for n in names - optional if n not in text}, set())

    def test_it_can_be_left_out(self):
        server = harness.Server("--web-page", "false")
        self.assertEqual(get(server, "/")[0].status, 404)
        self.assertEqual(get(server, "/page/main.js")[0].status, 404)
        self.assertEqual(get(server, "/livez")[0].status, 200)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    harness.main()
