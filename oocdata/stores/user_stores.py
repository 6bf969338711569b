"""Read from stores that the user opened: of obstore, or file systems of fsspec.

They hold credentials and connections of this process, so sources in them can't be sent to another
one. URLs name them by number: ``store-1://…``.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from oocdata.errors import ArgumentError
from oocdata.index import looks_like_url
from oocdata.stores.answers import Answer

_SCHEME = "store-"

_stores: dict[int, tuple[Any, Any]] = {}
"""Each store as the user gave it, and the client that reads ranges of it, by the store's `id`."""


def is_user_store(url: str) -> bool:
    """Return whether a URL is of a store that the user opened."""
    return url.startswith(_SCHEME)


def check_sendable(url: str) -> None:
    """Raise `ArgumentError` for an object in a store of the user's, which stays in the process."""
    if is_user_store(url):
        raise ArgumentError(
            "a source must be described by a URL to be sent to another process; this one reads "
            "through a store that was opened here, with credentials of its own. Open it by URL, "
            f"with credentials from the environment. [file '{url}']"
        )


def user_store_url(store: Any, path: Any) -> str:
    """Return the URL of a path in a store that the user opened."""
    is_path = isinstance(path, str | os.PathLike)
    if not is_path or looks_like_url(os.fspath(path)):
        got = "a URL, which may hold a credential" if is_path else repr(path)
        raise ArgumentError(
            f"`target` must be the name of an object in the store; got {got}. Without `store`, "
            "give a URL."
        )
    _, client = _stores.setdefault(id(store), (store, _client_of(store)))
    if isinstance(client, FsspecClient):
        path = client.absolute(os.fspath(path))
    number = list(_stores).index(id(store))
    return f"{_SCHEME}{number + 1}://store/{quote(os.fspath(path).strip('/'), safe='/*[]')}"


def user_store_client(root: str) -> Any:
    """Return the client that reads ranges of the store at a root."""
    number = int(root.partition("://")[0].removeprefix(_SCHEME)) - 1
    return list(_stores.values())[number][1]


def _client_of(store: Any) -> Any:
    if type(store).__module__.partition(".")[0] in ("obstore", "builtins") and hasattr(
        store, "get_range_async"
    ):
        return store
    if hasattr(store, "cat_file") and hasattr(store, "info"):
        return FsspecClient(store)
    raise ArgumentError(
        "`store` must be a store of obstore, or a file system of fsspec; got an object of "
        f"{type(store).__qualname__}."
    )


class FsspecClient:
    """A file system of fsspec, read by ranges in threads.

    Versions are those that the file system reports (ETag, time), perhaps from its own cache.
    """

    def __init__(self, files: Any) -> None:
        self._files = files

    def absolute(self, path: str) -> str:
        """Return a path in the form of the file system: absolute, if it is a local one."""
        return str(self._files._strip_protocol(path))

    def _rooted(self, name: str) -> str:
        # Names of URLs have no slashes at their ends.
        return f"{self._files.root_marker}{name.strip('/')}"

    async def ask(self, name: str, start: int, stop: int | None) -> Answer:
        """Return a range of an object, or all of it; see `oocdata.stores.link.Link.get`."""
        rooted = self._rooted(name)
        info, data = await asyncio.gather(
            asyncio.to_thread(self._files.info, rooted),
            asyncio.to_thread(self._files.cat_file, rooted, start or None, stop),
        )
        time = next((info[key] for key in _TIMES if info.get(key) is not None), 0)
        if isinstance(time, str):
            time = datetime.fromisoformat(time)
        if isinstance(time, datetime):
            time = time.replace(tzinfo=time.tzinfo or UTC).timestamp()
        tag = str(info.get("ETag") or info.get("etag") or info.get("md5Hash") or "")
        # For a chunk stored inside a reference file, `size` is the length of its text.
        nbytes = int(info["size"]) if start or stop is not None else len(data)
        return Answer(data, nbytes, tag, int(float(time)) * 1_000_000_000)

    def list(self, prefix: str) -> list[tuple[str, bool]]:
        """Return the names below a prefix, and whether each is a folder."""
        root = self._rooted(prefix)
        return [
            (one["name"].rstrip("/").rpartition("/")[2], one["type"] == "directory")
            for one in self._files.ls(root, detail=True)
            if one["name"].strip("/") != root.strip("/")
        ]


_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
