"""What a cache folder holds: bytes of objects that were fetched, and elements of datasets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime

from oocdata.advice.reading import size
from oocdata.errors import ArgumentError, MissingFileError
from oocdata.stores.folder import CachedObject, CacheFolder
from oocdata.tools.lines import Report, labelled, table
from oocdata.writers.cache import WrittenCache, written_caches

__all__ = ["Cache", "cache"]

_ENVIRONMENT = "OOCDATA_CACHE"


@dataclass(frozen=True, slots=True)
class Cache(Report):
    """What a cache folder holds, and what was deleted of it; what `cache` returns.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     CacheFolder(folder, limit=1 << 30).entry("s3://bucket/a", "1", 70).write(0, bytes(70))
    ...     found = cache(folder, clear=True)
    >>> found.freed, found.objects, found.limit
    (8192, (), 1073741824)
    """

    folder: str
    limit: int | None  #: bytes that objects may take; None where none were ever kept
    objects: tuple[CachedObject, ...]  #: of which bytes were fetched, the last used first
    datasets: tuple[WrittenCache, ...]  #: whose elements `Dataset.cache` wrote
    freed: int | None = None  #: bytes on the disk that came free; None where nothing was cleared
    in_use: tuple[str, ...] = ()  #: of datasets, left because a process writes them

    def text(self, show: int = 20) -> str:
        """Return it for a terminal, with so many objects and datasets at most."""
        limit = "" if self.limit is None else f", of at most {size(self.limit)}"
        objects, datasets = (
            f"{len(held):,}: {size(sum(one.nbytes for one in held))}"
            for held in (self.objects, self.datasets)
        )
        lines = [
            labelled("folder", self.folder),
            labelled("objects", objects + limit),
            labelled("datasets", datasets),
        ]
        if self.freed is not None:
            lines.append(labelled("cleared", size(self.freed)))
        lines += [labelled("left", f"{path}: a process writes it") for path in self.in_use]
        rows = [(one.name, one.nbytes, size(one.size), one.used) for one in self.objects[:show]]
        rows += [
            (one.made_of, one.nbytes, "all" if one.whole else "a part", one.used)
            for one in self.datasets[:show]
        ]
        if rows:
            told = [(*(name, size(n), of), f"{datetime.fromtimestamp(used):%Y-%m-%d %H:%M}")
                    for name, n, of, used in rows]  # fmt: skip
            lines += ["", table(["", "kept", "of", "last used"], told)]
        more = max(0, len(self.objects) - show) + max(0, len(self.datasets) - show)
        return "\n".join([*lines, *([f"… {more:,} more: --show, --json"] if more else [])])

    def __str__(self) -> str:
        return self.text()


def cache(
    folder: str | os.PathLike[str] | None = None,
    *,
    clear: bool = False,
    limit: int | None = None,
) -> Cache:
    """Show what a cache folder holds; clear it, or set its limit in bytes.

    The folder is that of the environment variable ``OOCDATA_CACHE`` if none is given; one that is
    not there is made where a `limit` is set. No such folder of oocdata's is an `ArgumentError`.
    """
    place = os.fspath(folder) if folder is not None else os.environ.get(_ENVIRONMENT)
    if not place:
        raise ArgumentError(
            f"`folder` must be given, or be the environment variable {_ENVIRONMENT}."
        )
    place = os.path.abspath(os.path.expanduser(place))
    if limit is not None:
        CacheFolder.at(place).set_limit(limit)
    if not os.path.isdir(place):
        raise MissingFileError("No such folder.", path=place)
    kept = CacheFolder.at(place) if CacheFolder.is_at(place) else None
    datasets = written_caches(place)
    if kept is None and not datasets:
        raise ArgumentError(
            f"`folder` must hold what oocdata caches; '{place}' holds none. To make it a cache "
            "folder, set its limit."
        )
    freed, in_use = None, list[str]()
    if clear:
        freed = kept.clear() if kept else 0
        in_use = [one.path for one in datasets if not one.delete()]
        freed += sum(one.nbytes for one in datasets if one.path not in in_use)
        datasets = written_caches(place)
    return Cache(
        place,
        kept.limit if kept else None,
        tuple(kept.show() if kept else ()),
        tuple(datasets),
        freed,
        tuple(in_use),
    )
