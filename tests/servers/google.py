"""A folder over the XML API of Google Cloud Storage, which obstore speaks.

The emulators that pip installs speak the JSON API: they give no listing, no ETag and no time of an
object that this client would take.
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from hashlib import md5
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from servers.counted import Record
from servers.http import Answer, Request, refusal, whole
from servers.ranges import RangeServer

__all__ = ["Google"]

TIME = "2026-01-01T00:00:00.000Z"


class Google(RangeServer):
    """Serve buckets, each a folder in a folder: read, list, write, delete; counted and held.

    Parameters
    ----------
    folder
        What is served.
    allows
        Whether it answers whoever sends a bearer token (empty without one); by default anyone.
    names
        How many names a page of a listing has, at most.
    """

    def __init__(
        self, folder: str | Path, *, allows: Callable[[str], bool] | None = None, names: int = 1000
    ) -> None:
        super().__init__(folder)
        self._allows, self._names = allows, names

    async def answer(self, request: Request, record: Record) -> Answer:
        """Return what a request gets; https://cloud.google.com/storage/docs/xml-api/overview."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._allows is not None and not self._allows(token):
            return refusal(401)
        parts = urlsplit(request.target)
        bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
        if not (self.folder / bucket).is_dir():
            return refusal(404)
        path = self.folder / bucket / name
        if request.method == "PUT":
            if request.headers.get("x-goog-if-generation-match") == "0" and path.exists():
                return refusal(412)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(request.body)
            tag = md5(request.body).hexdigest()
            return refusal(200, ETag=f'"{tag}"', x_goog_generation="1")
        if request.method == "DELETE":
            if not path.is_file():
                return refusal(404)
            path.unlink()
            return refusal(204)
        if name:
            found = await super().answer(request, record)
            found.headers["x-goog-generation"] = "1"
            return found
        data = self._listed(bucket, parse_qs(parts.query)).encode()
        headers = {"Content-Type": "application/xml", "Content-Length": str(len(data))}
        return Answer(200, {**headers, "Date": formatdate(usegmt=True)}, whole(data))

    def _listed(self, bucket: str, asked: dict[str, list[str]]) -> str:
        """Return a page of a listing (version 2)."""
        prefix, delimiter, after = (
            asked.get(key, [""])[0] for key in ("prefix", "delimiter", "continuation-token")
        )
        root, found = self.folder / bucket, dict[str, str]()
        for path in root.rglob("*"):
            name = path.relative_to(root).as_posix()
            if not path.is_file() or not name.startswith(prefix):
                continue
            folder, slash, _ = name.removeprefix(prefix).partition(delimiter or "\0")
            if slash:
                below = prefix + folder + slash
                shown = f"<Prefix>{escape(below)}</Prefix>"
                found[below] = f"<CommonPrefixes>{shown}</CommonPrefixes>"
                continue
            found[name] = (
                f"<Contents><Key>{escape(name)}</Key><Generation>1</Generation>"
                f"<LastModified>{TIME}</LastModified><ETag>&quot;1&quot;</ETag>"
                f"<Size>{path.stat().st_size}</Size></Contents>"
            )
        left = [name for name in sorted(found) if name > after]
        page = left[: self._names]
        more = (
            f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
            if len(left) > len(page)
            else ""
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://doc.s3.amazonaws.com/2006-03-01">'
            f"<Name>{bucket}</Name><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}"
            f"{''.join(found[name] for name in page)}</ListBucketResult>"
        )
