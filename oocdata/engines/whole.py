"""Files that get their name when they are whole: whoever is killed leaves none of that name."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO

__all__ = ["EXCHANGE", "NO_REPLACE", "renamed", "sync_file", "whole_file"]

NO_REPLACE, EXCHANGE = 1, 2
"""Of `renamed`: only a name that is free; or two files or folders change places."""

_HERE = -100
"""The current folder, of ``renameat2``."""


@contextmanager
def whole_file(
    path: str,
    unfinished: str = "",
    *,
    sync: bool = True,
    replaces: bool = True,
    mode: int = 0o666,
) -> Iterator[IO[bytes]]:
    """Write a file in a block; it has its name after that, unless the block raises.

    Parameters
    ----------
    path : str
    unfinished : str, optional
        Its path until then, where one process at a time writes it; by default one of its own.
    sync : bool
        The disk has it when it gets its name.
    replaces : bool
        It takes the place of a file of that name; if not, that one stays.
    mode : int
        Who may read and write it, as ``os.open`` takes it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for text in (b"one", b"two"):
    ...         with whole_file(f"{folder}/a", replaces=False) as file:
    ...             _ = file.write(text)
    ...     os.listdir(folder), Path(folder, "a").read_text()
    (['a'], 'one')
    """
    unfinished = unfinished or f"{path}.{os.urandom(8).hex()}.new"
    try:
        with open(unfinished, "wb", opener=partial(os.open, mode=mode)) as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if replaces:
            os.replace(unfinished, path)
        else:
            _name_if_free(unfinished, path)
        if sync:
            sync_file(os.path.dirname(path) or ".")  # a file's own fsync does not save its name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)


def _name_if_free(unfinished: str, path: str) -> None:
    # Not by a link: who opened the file meanwhile would find it changed when the other name goes.
    if not renamed(unfinished, path, NO_REPLACE) and not os.path.lexists(path):
        os.rename(unfinished, path)


def renamed(source: str, target: str, flag: int) -> bool:
    """Rename by Linux's ``renameat2``; return False where it can't be, or the name is taken."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = os.fsencode(source), os.fsencode(target)
    return rename is not None and rename(_HERE, names[0], _HERE, names[1], flag) == 0


def sync_file(path: str | os.PathLike[str]) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
