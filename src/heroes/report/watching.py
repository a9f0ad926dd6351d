"""A page that follows runs as they happen, served on this machine: `heroes watch`.

The page is one file without anything from outside. It gets what is new as server-sent events, read from the
records of the runs; the runs themselves do not notice. A request names no path: there are two addresses, the
page and its events.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from heroes.errors import ConfigError, RunFolderError
from heroes.report.following import Follower, runs_in
from heroes.report.page_style import CSS

POLL = 0.4  # seconds between looks at the records
SIGN = 5.0  # seconds after which a silent stream says that it lives
LOOK = 2.0  # seconds between looks for new runs
MOST_VIEWERS = 32


class Watch(ThreadingHTTPServer):
    """The server of the page. On an address beyond this machine every request needs the token."""

    daemon_threads = True

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 8080) -> None:
        if not folder.is_dir():
            raise RunFolderError(f"{str(folder)!r} is no folder: give a run folder, or one that holds runs")
        self.folder = folder
        self.token = None if _loopback(host) else secrets.token_urlsafe(24)
        self.viewers = threading.BoundedSemaphore(MOST_VIEWERS)
        self.closing = threading.Event()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            other = "--host" if isinstance(error, socket.gaierror) else "--port, 0 is any"
            raise ConfigError(
                f"cannot listen on {host} port {port}: {reason}; choose another with {other}"
            ) from None

    @property
    def url(self) -> str:
        host, port = str(self.server_address[0]), self.server_address[1]
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()  # all addresses are none that a browser can be given
        secret = "" if self.token is None else f"?token={self.token}"
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/{secret}"

    def shutdown(self) -> None:
        self.closing.set()
        super().shutdown()

    def events(self) -> Iterator[dict[str, Any] | None]:
        """What viewers are told, from the beginning on; None now and then if there is nothing to tell."""
        followers: dict[str, Follower] = {}
        looked = told = -LOOK
        empty: str | None = ""
        while not self.closing.is_set():
            now = time.monotonic()
            if now - looked >= LOOK:
                looked = now
                found = runs_in(self.folder)
                followers = {name: Follower(path) for name, path in found.items()} | followers
            if (said := self._empty(followers)) != empty:
                empty = said
                yield {"empty": said}
            for name, follower in followers.items():
                if (news := follower.news()) is not None:
                    told = now
                    yield {"run": name, **news}
            if now - told >= SIGN:
                told = now
                yield None
            if not any(each.behind for each in followers.values()):
                self.closing.wait(POLL)

    def _empty(self, followers: dict[str, Follower]) -> str | None:
        """Why there is nothing to see, if there is nothing."""
        if followers:
            return None
        return "no run in this folder yet" if self.folder.is_dir() else "the folder is gone"


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _Handler(BaseHTTPRequestHandler):
    server: Watch
    server_version, sys_version = "heroes", ""
    timeout = 60

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if not self._allowed(parse_qs(asked.query)):
            self._refuse(HTTPStatus.FORBIDDEN, f"open the address that `heroes watch` printed: {self._lacks}")
        elif asked.path == "/":
            self._page()
        elif asked.path == "/events":
            self._stream()
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is only the page, at /")

    @property
    def _lacks(self) -> str:
        return "this one is of another name" if self.server.token is None else "this one lacks its token"

    def _allowed(self, query: dict[str, list[str]]) -> bool:
        """With a token: it is there. Without: the browser was not led here by another name."""
        if self.server.token is not None:
            given = query.get("token", [""])[0]
            return hmac.compare_digest(given.encode(), self.server.token.encode())
        try:
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        except ValueError:
            return False
        return _loopback(name or "")

    def _refuse(self, code: HTTPStatus, why: str) -> None:
        self._begin(code, "text/plain; charset=utf-8")
        self.wfile.write(f"{why}\n".encode())

    def _begin(self, code: HTTPStatus, kind: str, policy: str = "default-src 'none'") -> None:
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()

    def _page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        inline = f"style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'"
        policy = f"default-src 'none'; {inline}; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        self._begin(HTTPStatus.OK, "text/html; charset=utf-8", f"{policy}frame-ancestors 'none'")
        page = files("heroes.report").joinpath("watch.html").read_text(encoding="utf-8")
        self.wfile.write(page.replace("%CSS%", CSS).replace("%NONCE%", nonce).encode())

    def _stream(self) -> None:
        if not self.server.viewers.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_VIEWERS} pages are open already")
            return
        try:
            self._begin(HTTPStatus.OK, "text/event-stream; charset=utf-8")
            for event in self.server.events():
                text = ": alive\n\n" if event is None else f"data: {json.dumps(event)}\n\n"
                self.wfile.write(text.encode())
        except OSError:  # the page was closed
            pass
        finally:
            self.server.viewers.release()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: only the command line prints."""
