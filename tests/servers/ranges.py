"""A folder over HTTP with byte ranges: what S3, GCS and any decent web server do."""

from __future__ import annotations

import os
import ssl
from email.utils import formatdate
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from servers.counted import CountedServer, Record
from servers.http import Answer, Request, refusal, whole

__all__ = ["RangeServer", "version_of"]


def version_of(path: str | Path) -> str:
    """Return the strong ETag of a file: it changes with its inode, its size and its time."""
    return _version(os.stat(path))


class RangeServer(CountedServer):
    """Serve a folder: GET and HEAD, one range, ``If-Match``, ``If-None-Match``; counted and held.

    Parameters
    ----------
    folder
        What is served. Nothing outside of it is, and no listing.
    etag
        True for a strong ETag, "weak" for a weak one (``If-Match`` never matches it), False for
        none.
    latency, address, port, tls
        As of ``CountedServer``.

    Examples
    --------
    >>> import tempfile, urllib.request
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "x.bin").write_bytes(b"0123456789")
    ...     with RangeServer(folder) as server:
    ...         headers = {"Range": "bytes=2-4"}
    ...         asked = urllib.request.Request(f"{server.url}/x.bin", headers=headers)
    ...         with urllib.request.urlopen(asked) as answer:
    ...             answer.status, answer.read(), server.nbytes
    (206, b'234', 3)
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        etag: bool | Literal["weak"] = True,
        latency: float = 0.0,
        address: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(latency=latency, address=address, port=port, tls=tls)
        self.folder = Path(folder).resolve()
        self._etag = etag

    async def answer(self, request: Request, record: Record) -> Answer:
        """Return a file, a range of it, or why not."""
        if request.method not in ("GET", "HEAD"):
            return refusal(405, Allow="GET, HEAD")
        path = (self.folder / unquote(urlsplit(request.target).path).lstrip("/")).resolve()
        if not path.is_relative_to(self.folder) or not path.is_file():
            return refusal(404)
        # Size, version and bytes of one file, also where another takes its place meanwhile.
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            version = _version(status)
            if not _matches(request.headers.get("if-match"), version, self._etag is True):
                return refusal(412)
            known = request.headers.get("if-none-match")
            if known is not None and version in known:
                return refusal(304)
            size = status.st_size
            # RFC 9110, 14.2: a range means something with GET alone.
            asked = request.range if request.method == "GET" else (None, None)
            start, stop = _bounds(asked, size)
            if asked[0] is not None and start >= stop:
                return refusal(416, Content_Range=f"bytes */{size}")
            headers = {
                "Accept-Ranges": "bytes",
                "Content-Type": "application/octet-stream",
                "Content-Length": str(stop - start),
                "Last-Modified": formatdate(status.st_mtime, usegmt=True),
            }
            if self._etag:
                headers["ETag"] = f"W/{version}" if self._etag == "weak" else version
            if asked[0] is not None:
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
            file.seek(start)
            data = b"" if request.method == "HEAD" else file.read(stop - start)
        return Answer(200 if asked[0] is None else 206, headers, whole(data))


def _version(status: os.stat_result) -> str:
    return f'"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"'


def _bounds(asked: tuple[int | None, int | None], size: int) -> tuple[int, int]:
    """Return the bytes of a file that a range asks for; stop ≤ start where there are none."""
    start, stop = asked
    if start is None:
        return 0, size
    if start < 0:
        return max(0, size + start), size
    return start, size if stop is None else min(size, stop)


def _matches(wanted: str | None, version: str, strong: bool) -> bool:
    """Return whether ``If-Match`` allows an answer: with ``*``, or where it has the strong ETag."""
    if wanted is None or wanted.strip() == "*":
        return True
    return strong and version in [one.strip() for one in wanted.split(",")]
