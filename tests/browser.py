"""A browser without a window, driven over the pipes of its debugging protocol."""

from __future__ import annotations

import base64
import io
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imread

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--remote-debugging-pipe"),
)


def installed() -> str | None:
    """Path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """Chromium with one page at a time.

    Args:
        profile: an empty folder for what it writes.
    """

    def __init__(self, profile: Path) -> None:
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        program = installed()
        assert program is not None
        # the protocol reads descriptor 3 and writes descriptor 4
        words = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", *words],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._rest, self._number, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        size = {"width": 1200, "height": 700, "deviceScaleFactor": 1.0, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask for something, and wait for the answer; events on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._received(60)
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return found["result"]
            self.events.append(found)

    def _received(self, seconds: float) -> dict[str, Any]:
        parts = [self._rest]
        while b"\0" not in parts[-1]:
            ready, _, _ = select.select([self._in], [], [], seconds)
            assert ready, "the browser does not answer"
            parts.append(os.read(self._in, 1 << 20))
            assert parts[-1], "the browser ended"
        message, _, self._rest = b"".join(parts).partition(b"\0")
        return json.loads(message)

    def open(self, path: Path) -> None:
        """Load a file, and wait until it has run."""
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.until("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str, seconds: float = 30.0) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.value(expression)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **text)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": x, "y": y, "button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, **where)

    def pixels(self) -> np.ndarray:
        """The window [rows, columns, 3], 0..255."""
        picture = base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])
        return np.round(255 * imread(io.BytesIO(picture))[..., :3]).astype(int)

    def complaints(self) -> list[str]:
        """What the page said so far, and what it asked the network for."""
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        found = [str(event) for event in self.events if event.get("method") in bad]
        for event in self.events:
            if event.get("method") == "Network.requestWillBeSent":
                found.append(event["params"]["request"]["url"])
        return [one for one in found if not one.startswith(("file:", "data:", "about:", "blob:"))]
