"""A headless Chromium of the system, spoken to over its debugging pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--hide-scrollbars", "--force-device-scale-factor=1",
)
PATIENCE = 60.0
"""Seconds after which an answer is not waited for any longer."""


class BrowserError(Exception):
    """The browser refused, or did not answer."""


class Browser:
    """One process. Messages are JSON, each ended by a zero byte, on its file descriptors 3 and 4."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # A shell puts the two pipes where the browser looks for them.
        script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        command = ["bash", "-c", script, CHROMIUM or "", *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._received = b""
        self._sent = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The result of a command of the DevTools protocol. Events that come meanwhile are kept in `events`."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message(time.monotonic() + PATIENCE, method)
            if answer.get("id") == self._sent:
                break
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def wait(self, method: str, session: str) -> None:
        """Until such an event has come."""
        until = time.monotonic() + PATIENCE
        while not any(event["method"] == method and event.get("sessionId") == session for event in self.events):
            self._message(until, method)

    def _message(self, until: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._in, 1 << 16) if ready else b""
            if not part:
                raise BrowserError(f"no answer to {what}: the browser {'is silent' if not ready else 'has ended'}")
            self._received += part
        text, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


class Tab:
    """One page in the browser, with all that it asked for and complained of."""

    def __init__(self, browser: Browser, page: Path) -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")
        self.prefer("light")
        self.resize(1200)
        self.address = page.resolve().as_uri()
        failed = self.call("Page.navigate", url=self.address).get("errorText")
        if failed:
            raise BrowserError(f"{page}: {failed}")
        browser.wait("Page.loadEventFired", self._session)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def prefer(self, scheme: str) -> None:
        """Be a system that likes its pages light or dark. A page in front only is told of it."""
        self.call("Page.bringToFront")
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int) -> None:
        self.call("Page.bringToFront")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited where it is a promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str) -> bool:
        """Whether an expression becomes true: what the browser does of its own accord takes a frame or two."""
        ends = time.monotonic() + PATIENCE / 4
        while not (found := bool(self.run(script))) and time.monotonic() < ends:
            time.sleep(0.02)
        return found

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def events(self, *methods: str) -> list[dict[str, Any]]:
        return [
            event["params"] for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] in methods
        ]

    @property
    def requested(self) -> list[str]:
        """The addresses that were asked for, the page's own excepted, and those in the page itself (data:, blob:)."""
        sent = [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]
        return [url for url in sent if url != self.address and not url.startswith(("data:", "blob:"))]

    @property
    def complaints(self) -> list[str]:
        """What was written to the console, and errors nobody caught."""
        written = self.events("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event) for event in written]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextmanager
def opened(browser: Browser, page: Path) -> Iterator[Tab]:
    tab = Tab(browser, page)
    try:
        yield tab
    finally:
        tab.close()
