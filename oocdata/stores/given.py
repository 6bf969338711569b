"""Stores that the user opened: of obstore, or file systems of fsspec.

They hold credentials and connections of this process, so what is opened in them stays in it: a
description says only that. In URLs they are called ``store-1://…`` by their number.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from oocdata.errors import ArgumentError
from oocdata.stores.answer import Answer

__all__ = ["FileSystem", "given_store", "in_store", "is_given", "refused"]

_SCHEME = "store-"

_given: list[tuple[Any, Any]] = []
"""What the user gave, and what is asked for ranges."""


def is_given(url: str) -> bool:
    """Return whether a URL leads into a store that the user opened.

    Examples
    --------
    >>> is_given("store-1://store/a.npy"), is_given("s3://bucket/a.npy")
    (True, False)
    """
    return url.startswith(_SCHEME)


def refused(url: str) -> str:
    """Return why what is opened in a store of the user's can't leave the process."""
    return (
        "a source must be described by a URL to be sent to another process; this one reads through "
        "a store that was opened here, with credentials of its own. Open it by URL, with "
        f"credentials from the environment. [file '{url}']"
    )


def in_store(store: Any, path: Any) -> str:
    """Return the URL of a path in a store that the user opened.

    Examples
    --------
    >>> import fsspec
    >>> in_store(fsspec.filesystem("memory"), "a b.npy").partition("://")[2]
    'store/a%20b.npy'
    """
    if not isinstance(path, str | os.PathLike) or "://" in os.fspath(path):
        raise ArgumentError(
            f"`target` must be the name of an object in the store; got {path!r}. Without `store`, "
            "give a URL."
        )
    number = next((at for at, (one, _) in enumerate(_given) if one is store), None)
    if number is None:
        _given.append((store, _asked(store)))
        number = len(_given) - 1
    files = _given[number][1]
    if isinstance(files, FileSystem):
        path = files.absolute(os.fspath(path))
    return f"{_SCHEME}{number + 1}://store/{quote(os.fspath(path).strip('/'), safe='/*[]')}"


def given_store(root: str) -> Any:
    """Return what is asked for ranges of the store at a root."""
    return _given[int(root.partition("://")[0].removeprefix(_SCHEME)) - 1][1]


def _asked(store: Any) -> Any:
    if type(store).__module__.partition(".")[0] in ("obstore", "builtins") and hasattr(
        store, "get_range_async"
    ):
        return store
    if hasattr(store, "cat_file") and hasattr(store, "info"):
        return FileSystem(store)
    raise ArgumentError(
        "`store` must be a store of obstore, or a file system of fsspec; got an object of "
        f"{type(store).__qualname__}."
    )


class FileSystem:
    """A file system of fsspec, asked for ranges in threads.

    It says which version an object is by what it knows of it (ETag, time), which it may remember.
    """

    def __init__(self, files: Any) -> None:
        self._files = files

    def absolute(self, path: str) -> str:
        """Return a path as the file system has it: a local one from the root on."""
        return str(self._files._strip_protocol(path))

    def _rooted(self, name: str) -> str:
        # A URL holds none of the slashes at both ends.
        return f"{self._files.root_marker}{name.strip('/')}"

    async def ask(self, name: str, options: dict[str, Any]) -> Answer:
        """Return a range of an object; `options` as obstore takes them."""
        asked = options.get("range")
        start, stop = asked if isinstance(asked, tuple) else (None, None)
        if isinstance(asked, dict):
            start = -asked["suffix"] if "suffix" in asked else asked["offset"]
        about, data = await asyncio.gather(
            asyncio.to_thread(self._files.info, self._rooted(name)),
            asyncio.to_thread(self._files.cat_file, self._rooted(name), start, stop),
        )
        found = next((about[key] for key in _TIMES if about.get(key) is not None), 0)
        if isinstance(found, str):
            found = datetime.fromisoformat(found)
        seconds = found.replace(tzinfo=found.tzinfo or UTC).timestamp() if isinstance(
            found, datetime
        ) else float(found)  # fmt: skip
        tag = str(about.get("ETag") or about.get("etag") or about.get("md5Hash") or "")
        # Of a chunk that is written into the references, the length of the text is given.
        nbytes = len(data) if asked is None else int(about["size"])
        return Answer(data, nbytes, tag, int(seconds) * 1_000_000_000)

    def list(self, prefix: str) -> list[tuple[str, bool]]:
        """Return the names below a prefix, and whether each is a folder."""
        root = self._rooted(prefix)
        return [
            (one["name"].rstrip("/").rpartition("/")[2], one["type"] == "directory")
            for one in self._files.ls(root, detail=True)
            if one["name"].strip("/") != root.strip("/")
        ]


_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
