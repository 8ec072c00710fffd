"""A browser without a screen, through the WebDriver protocol of chromedriver; scripts/setup browser installs both."""
import base64
import json
import pathlib
import shutil
import subprocess
import time
import urllib.error
import urllib.request


def is_there():
    return shutil.which("chromedriver") is not None and shutil.which("chromium") is not None


class Browser:
    def __init__(self, width=1200, height=800):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = next(line for line in self.driver.stdout if "successfully on port" in line)
        self.base = f"http://127.0.0.1:{line.rsplit(' ', 1)[1].strip().rstrip('.')}/session"
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}"]}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            self.base += "/" + self.ask("POST", "", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]
        except BaseException:
            self.driver.kill()
            raise

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            return json.load(urllib.request.urlopen(request, timeout=60))["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def close(self):
        try:
            self.ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.driver.stdout.close()

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """The value of a script's `return`."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition, seconds=20):
        """Until a JavaScript expression is true; its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(f"return {condition}")
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {condition}\n{self.run('return document.body.innerText')}\n{self.log()}")
            time.sleep(0.05)

    def click(self, selector):
        element = self.ask("POST", "/element", {"using": "css selector", "value": selector})
        self.ask("POST", f"/element/{next(iter(element.values()))}/click", {})

    def fill(self, selector, text):
        """As if it had been typed."""
        self.run("const e = document.querySelector(arguments[0]); e.value = arguments[1];"
                 "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true}))", selector, text)

    def press(self, selector, keys):
        element = self.ask("POST", "/element", {"using": "css selector", "value": selector})
        self.ask("POST", f"/element/{next(iter(element.values()))}/value", {"text": keys})

    def log(self):
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def protocol(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, width, height, dark=False):
        self.protocol("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.protocol("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.ask("GET", "/screenshot")))
