"""The command that writes a file again in another form."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.errors import OocdataError
from oocdata.explain import as_typed
from oocdata.tools.bench.result import Bench
from oocdata.tools.info import Opening

__all__ = ["convert_command", "known_opening"]


def known_opening(
    path: str | None, key: str | None, dataset: Dataset, opening: Opening | None
) -> Opening | None:
    """Return how a dataset's file is opened, if that gives the same array again; None if not.

    Parameters
    ----------
    path, key : str or None
        What the dataset is read from.
    dataset : Dataset
    opening : Opening or None
        How it was opened; None where that is not known, and the usual way is tried.
    """
    opening = opening or Opening()
    view: Any = dataset
    while not isinstance(view, View):
        view = getattr(view, "view", None) or getattr(view, "source", None)  # of windows, of a map
        if view is None:
            return None
    try:
        again = None if path is None else opening.view(path, key)
    except OocdataError:  # several files, or one that must be opened in another way
        return None
    if again is None or len(view.storage.parts) > 1:
        return None
    same = again.axes == view.axes and again.storage.opened == view.storage.opened
    return opening if same and again.source.shape == view.source.shape else None


def convert_command(
    found: Bench, *, chunks: int | None = None, codec: str | None = None
) -> str | None:
    """Return an ``oocdata convert`` that can be typed as it is.

    None where it isn't known how to open the file: there is none, or there are several.

    Parameters
    ----------
    found : Bench
    chunks : int, optional
        Rows of a chunk.
    codec : str, optional
    """
    if found.path is None or found.opening is None:
        return None
    source = Path(found.path)
    zarr = found.format.startswith("Zarr")
    compressed = chunks is not None or codec is not None
    suffix = ".zarr" if zarr else ".h5" if compressed else ".npy"
    words = ["oocdata", "convert", as_typed(found.path), f"{source.stem}-new{suffix}"]
    if found.key:
        words += ["--key", found.key]
    words += _options(found.opening)
    if chunks is not None:
        words += ["--chunks", str(chunks)]
    if codec is not None:
        words += ["--codec", codec]
    return shlex.join(words)


def _options(opening: Opening) -> list[str]:
    """Return arguments of `oocdata.open` as commands take them, those that differ from the usual.

    Examples
    --------
    >>> _options(Opening(axis=1, dtype=">f4", shape=(-1, 64), external=True))
    ['--axis', '1', '--dtype', '>f4', '--shape', '-1,64', '--external']
    """
    usual = asdict(Opening())
    words: list[str] = []
    for name, value in asdict(opening).items():
        if value != usual[name]:
            words.append(f"--{name}")
            if value is not True:
                several = isinstance(value, tuple | list)
                words.append(",".join(map(str, value)) if several else str(value))
    return words
