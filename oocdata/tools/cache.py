"""Show or clear a cache folder, which holds fetched objects and written datasets."""

from __future__ import annotations

import os
from dataclasses import dataclass

from oocdata.advice.reading import size
from oocdata.errors import ArgumentError, MissingFileError
from oocdata.index import as_path
from oocdata.stores.folder import OBJECTS, CacheFolder
from oocdata.tools.report import Report, fields_text
from oocdata.writers.cache import WrittenCache, written_caches

_ENVIRONMENT = "OOCDATA_CACHE"


@dataclass(frozen=True, slots=True)
class Cache(Report):
    """Contents of a cache folder, and what was deleted from it; the result of `cache`."""

    folder: str
    limit: int | None  #: bytes that objects may take; None if no object was ever cached
    objects: int  #: files of objects
    object_bytes: int  #: bytes on the disk that these take
    datasets: tuple[WrittenCache, ...]  #: datasets that `Dataset.cache` wrote
    freed: int | None = None  #: bytes freed on the disk; None if nothing was cleared
    in_use: tuple[str, ...] = ()  #: paths of datasets that were left: a process is writing them

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" of at most {size(self.limit)}"
        dataset_bytes = sum(entry.nbytes for entry in self.datasets)
        fields = [
            ("folder", self.folder),
            ("objects", f"{self.objects:,}, {size(self.object_bytes)}{limit}"),
            ("datasets", f"{len(self.datasets):,}, {size(dataset_bytes)}"),
            ("cleared", None if self.freed is None else size(self.freed)),
            *(("left", f"{path}: a process is writing it") for path in self.in_use),
        ]
        return fields_text(fields)


def cache(folder: str | os.PathLike[str] | None = None, *, clear: bool = False) -> Cache:
    """Show what a cache folder holds, or clear it.

    The default folder is that of the environment variable ``OOCDATA_CACHE``. A folder that is no
    cache is an `ArgumentError`.
    """
    folder = os.environ.get(_ENVIRONMENT) if folder is None else folder
    if not folder:
        raise ArgumentError(
            f"`folder` must be given, or set by the environment variable {_ENVIRONMENT}."
        )
    path = os.path.abspath(as_path("folder", folder))
    if not os.path.isdir(path):
        raise MissingFileError("No such folder.", path=path)
    objects = CacheFolder.at(path) if os.path.isdir(os.path.join(path, OBJECTS)) else None
    datasets = written_caches(path)
    if objects is None and not datasets:
        raise ArgumentError(f"`folder` must be a cache folder of oocdata; '{path}' is none.")
    freed, in_use = None, list[str]()
    if clear:
        freed = objects.clear() if objects else 0
        in_use = [dataset.path for dataset in datasets if not dataset.delete()]
        freed += sum(dataset.nbytes for dataset in datasets if dataset.path not in in_use)
        datasets = written_caches(path)
    sizes = [nbytes for _, _, nbytes in objects.files()] if objects else []
    limit = objects.limit if objects else None
    return Cache(path, limit, len(sizes), sum(sizes), tuple(datasets), freed, tuple(in_use))
