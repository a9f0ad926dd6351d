"""Pages in a headless Chromium: ask them, press their buttons, take their pictures.

It is driven over a pair of pipes, in Chromium's own protocol. One browser serves all tests of a process.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patience import patience

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync --remote-debugging-pipe"
)
QUIET = 0.1  # seconds between looks


class Browser:
    """What is said to Chromium, and what it answers."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest, self._count = to, back, b"", 0

    def call(self, method: str, session: str | None = None, **given: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": given}
        message |= {"sessionId": session} if session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            content = os.read(self._back, 1 << 20)
            assert content, "Chromium is gone"
            self._rest += content
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))

    @contextmanager
    def tab(self) -> Iterator[Tab]:
        """A page of its own, closed with the context."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        try:
            yield Tab(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        finally:
            self.call("Target.closeTarget", targetId=target)


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.call("Page.enable")

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **given)

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState !== 'loading'")

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str, right: Callable[[Any], bool] = bool) -> Any:
        """The value of an expression when it is right at last."""
        limit = time.monotonic() + patience(60)
        while not right(found := self.ask(script)):
            assert time.monotonic() < limit, f"{script} is {found!r}"
            time.sleep(QUIET)
        return found

    def picture(self, path: Path) -> None:
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in the folder; it ends with the context."""
    program = shutil.which("chromium")
    assert program, "the tests need Chromium: make browser"
    pipes = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for pair in (os.pipe(), os.pipe()) for end in pair]
    theirs, to, back, answers = pipes

    def connect() -> None:
        os.dup2(theirs, 3)
        os.dup2(answers, 4)

    command = [program, *FLAGS.split(), f"--user-data-dir={folder / 'profile'}"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, preexec_fn=connect, pass_fds=(3, 4), **quiet) as process:
        os.close(theirs)
        os.close(answers)
        try:
            yield Browser(to, back)
        finally:
            process.kill()
            os.close(to)
            os.close(back)
