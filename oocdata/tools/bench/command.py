"""The command that writes a file again in another form."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from oocdata.datasets.dataset import Dataset
from oocdata.sources.concat import Concat
from oocdata.tools.bench.result import Bench
from oocdata.tools.profile.needed import sources_of

__all__ = ["as_typed", "convert_command"]


def as_typed(path: str) -> str:
    """Return a path below the current folder as a user would type it.

    Examples
    --------
    >>> as_typed(f"{os.getcwd()}/ds.npy")
    'ds.npy'
    """
    return path.removeprefix(f"{os.getcwd()}{os.sep}")


def convert_command(
    found: Bench, dataset: Dataset, *, chunks: int | None = None, codec: str | None = None
) -> str | None:
    """Return an ``oocdata convert`` that can be typed as it is; None where there is no one file.

    Parameters
    ----------
    found : Bench
    dataset : Dataset
    chunks : int, optional
        Rows of a chunk.
    codec : str, optional
    """
    if found.path is None or any(isinstance(one, Concat) for one in sources_of(dataset)):
        return None
    source = Path(found.path)
    zarr = found.format.startswith("Zarr")
    compressed = chunks is not None or codec is not None
    suffix = ".zarr" if zarr else ".h5" if compressed else ".npy"
    words = ["oocdata", "convert", as_typed(found.path), f"{source.stem}-new{suffix}"]
    if found.key:
        words += ["--key", found.key]
    if chunks is not None:
        words += ["--chunks", str(chunks)]
    if codec is not None:
        words += ["--codec", codec]
    return shlex.join(words)
