"""A headless Chromium for tests of pages, driven over a pipe by its own protocol (Chrome DevTools Protocol). Needs no package.

with Browser() as browser:
    page = browser.open(FILE, width=400)
    page.evaluate("document.title")
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 60


def find_chromium():
    """The program, or None. Debian's package is named chromium; scripts/setup.sh --browser installs it."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A page that has been loaded. `problems`: console errors and exceptions; `requests`: addresses that it asked for."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.problems, self.requests = [], []

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def evaluate(self, expression):
        """The value of a JavaScript expression. A promise is awaited."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails']['exception'].get('description')}")
        return found["result"].get("value")

    def frames(self):
        """Waits until the page has been drawn and its events have been handled."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")

    def press(self, key, code=0, text=""):
        """Presses and releases a key: press("Tab", 9), press("Enter", 13, "\\r")."""
        same = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **same)
        self.send("Input.dispatchKeyEvent", type="keyUp", **same)

    def resize(self, width, height=900):
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def media(self, scheme="light", medium=""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", media=medium, features=features)

    def screenshot(self, file, whole=True):
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(file).write_bytes(base64.b64decode(found["data"]))

    def pdf(self, file):
        found = self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        pathlib.Path(file).write_bytes(base64.b64decode(found["data"]))


class Browser:
    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        # The browser reads commands from file descriptor 3 and writes answers to 4.
        command = [
            "/bin/sh",
            "-c",
            f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}',
            find_chromium(),
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-extensions", "--hide-scrollbars", f"--user-data-dir={self.profile.name}", "about:blank"),
        ]
        self.process = subprocess.Popen(
            command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser), os.close(from_browser)
        self.buffer, self.number, self.pages = b"", 0, {}
        return self

    def __exit__(self, *_):
        try:
            self.send("Browser.close")
        except (AssertionError, OSError):
            pass
        os.close(self.write_end), os.close(self.read_end)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()

    def receive(self):
        """The next message: an answer, or an event, which is noted."""
        while b"\0" not in self.buffer:
            read = os.read(self.read_end, 1 << 20)
            if not read:
                raise AssertionError("Chromium ended before it answered.")
            self.buffer += read
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.note(message)
        return message

    def note(self, event):
        page, parameters = self.pages.get(event.get("sessionId")), event.get("params", {})
        if page is None:
            return
        if event["method"] == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            page.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            page.problems.append(" ".join(str(one.get("value", one)) for one in parameters["args"]))
        elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            page.problems.append(parameters["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent":
            page.requests.append(parameters["request"]["url"])
        elif event["method"] == "Page.loadEventFired":
            page.loaded = True

    def send(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open(self, file, width=1280, height=900, scheme="light"):
        """Loads a file and waits until its scripts have run."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        page.media(scheme)
        page.loaded = False
        address = file if "://" in str(file) else pathlib.Path(file).resolve().as_uri()
        page.send("Page.navigate", url=address)
        end = time.monotonic() + PATIENCE_S
        while not page.loaded:
            if time.monotonic() > end:
                raise AssertionError(f"{file}: not loaded after {PATIENCE_S} s")
            self.receive()
        page.frames()
        return page
