"""Headless Chromium, driven by its DevTools protocol: what a user sees, types and clicks."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

__all__ = ["CHROMIUM", "NEEDS_CHROMIUM", "Browser", "Page", "chromium"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium; Debian has it in the package chromium"
)

PATIENCE = 20.0
"""Seconds to wait for something that should come soon; only a failing test waits so long."""

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0"),
)

KEYS = {
    "Tab": (9, "Tab", ""),
    "Enter": (13, "Enter", "\r"),
    "Escape": (27, "Escape", ""),
    "Space": (32, "Space", " "),
}
SHIFT = 8


class Browser:
    """A browser that runs."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last = 0
        self._pages: dict[str, Page] = {}

    def call(self, method: str, session: str = "", **parameters: Any) -> Any:
        """Call a method, and return its result. Events that come meanwhile go to their pages."""
        number = self.send(method, session, **parameters)
        while True:
            found = json.loads(self._socket.recv(PATIENCE))
            if found.get("id") == number:
                assert "error" not in found, (method, found["error"])
                return found["result"]
            page = self._pages.get(found.get("sessionId", ""))
            if page is not None and "method" in found:
                page.on_event(found["method"], found["params"])

    def send(self, method: str, session: str = "", **parameters: Any) -> int:
        """Call a method without its result, and return the number of the call."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        return self._last

    def page(self, width: int = 1280, height: int = 900) -> Page:
        """Open an empty page, with cookies and passwords of its own, which end with it."""
        context = self.call("Target.createBrowserContext", disposeOnDetach=True)
        where = {"browserContextId": context["browserContextId"]}
        target = self.call("Target.createTarget", url="about:blank", **where)["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        made = Page(self, attached["sessionId"], target)
        self._pages[attached["sessionId"]] = made
        for domain in ("Page", "Runtime", "Network", "Log"):
            made.call(f"{domain}.enable")
        made.size(width, height)
        return made


class Page:
    """A page of a browser.

    Attributes:
        faults: What the page has written to the console as an error, exceptions, and violations of
            its content security policy.
        requests: The URLs that it has asked for.
    """

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        self._password: tuple[str, str] | None = None
        self._browser = browser
        self._session = session
        self._target = target

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the page."""
        return self._browser.call(method, self._session, **parameters)

    def on_event(self, method: str, parameters: Any) -> None:
        """Keep what tests look at."""
        if method == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
            self.faults.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.faults.append(f"{parameters['entry']['text']} {parameters['entry'].get('url')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Fetch.requestPaused":
            self._send("Fetch.continueRequest", requestId=parameters["requestId"])
        elif method == "Fetch.authRequired":
            self._on_prompt(parameters["requestId"])

    def _on_prompt(self, request: str) -> None:
        """Answer the window in which the browser asks for a user and a password, once."""
        answer = {"response": "CancelAuth"}
        if self._password is not None:
            name, password = self._password
            answer = {"response": "ProvideCredentials", "username": name, "password": password}
            self._password = None
        self._send("Fetch.continueWithAuth", requestId=request, authChallengeResponse=answer)

    def _send(self, method: str, **parameters: Any) -> None:
        self._browser.send(method, self._session, **parameters)

    def give_password(self, name: str, password: str) -> None:
        """Type these into the window in which the browser asks for them."""
        self._password = name, password
        self.call("Fetch.enable", handleAuthRequests=True)

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """Set the size of the page, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def media(self, **features: str) -> None:
        """Set media features, such as `prefers_color_scheme`."""
        values = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
        ]
        self.call("Emulation.setEmulatedMedia", features=values)

    def open(self, url: str) -> None:
        """Go to a URL."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript, or of its promise."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, why: str = "") -> Any:
        """Wait until an expression is true, and return its value."""
        end = time.monotonic() + PATIENCE
        # An element has no value of its own that could be sent.
        shown = f"(it => it instanceof Node || it)({script})"
        while not (value := self.run(f"(() => {{ try {{ return {shown} }} catch {{}} }})()")):
            assert time.monotonic() < end, f"{why or script}\n{self.text()}\n{self.faults}"
            time.sleep(0.02)  # the browser has to get some of the processor
        return value

    def text(self) -> str:
        """Return the text that the page shows."""
        return str(self.run("document.body?.innerText ?? ''"))

    def see(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})", f"no {text!r}")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key."""
        code, name, text = KEYS[key]
        common = {
            "windowsVirtualKeyCode": code,
            "key": text if key == "Space" else name,
            "code": name,
            "modifiers": SHIFT * shift,
        }
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def write(self, text: str) -> None:
        """Write a text into the field that has the focus."""
        self.call("Input.insertText", text=text)

    def tab_to(self, script: str, most: int = 80) -> None:
        """Press Tab until the element with the focus, `it`, is the one of an expression."""
        for _ in range(most):
            self.press("Tab")
            if self.run(f"((it) => {script})(document.activeElement)"):
                return
        pytest.fail(f"no Tab leads to {script}")

    def hide(self, *, hidden: bool) -> None:
        """Have the page believe that it is in the background, or in front again."""
        state = "hidden" if hidden else "visible"
        self.run(
            f"Object.defineProperty(document, 'hidden', {{value: {str(hidden).lower()}, "
            f"configurable: true}}); Object.defineProperty(document, 'visibilityState', "
            f"{{value: '{state}', configurable: true}}); "
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the page as PNG."""
        clip: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {**size, "scale": 1}, "captureBeyondViewport": True}
        found = self.call("Page.captureScreenshot", format="png", **clip)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """Close the page."""
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextmanager
def chromium() -> Generator[Browser]:
    """Run Chromium with a profile of its own; in the end it is killed."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                line = next(each for each in process.stderr if "DevTools listening on " in each)
                uri = line.partition("listening on ")[2].strip()
                with connect(uri, max_size=None, proxy=None, ping_interval=None) as socket:
                    yield Browser(socket)
            finally:
                process.kill()
                process.stderr.close()
