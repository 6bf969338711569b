"""`oocdata check`: read everything once, and say what is wrong with which rows.

A check goes on after each fault, and does not change anything. With a manifest it compares every
row with the checksum that was made of it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Unpack

from oocdata.datasets.dataset import Dataset
from oocdata.errors import ArgumentError
from oocdata.formats.verified import manifest_of
from oocdata.tools.check.file import Checks, health_of
from oocdata.tools.check.result import KINDS, NOTES, Checked, Finding, Health
from oocdata.tools.opening import OpenArguments, Opening, which_rows

__all__ = ["KINDS", "NOTES", "Checked", "Finding", "Health", "check"]


def check(
    target: Any,
    key: str | None = None,
    *,
    manifest: bool | str | os.PathLike[str] | None = None,
    write_manifest: bool | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = False,
    **opening: Unpack[OpenArguments],
) -> Health:
    """Read everything once and say what is wrong with which rows.

    Parameters
    ----------
    target : path, URL, glob, list of them, or View
        Of several files, each is checked for itself. Of a View the rows are read, and named by
        their positions: what else is wrong with its file is found by the path.
    key : str, optional
        The dataset in it; all of them otherwise.
    manifest : bool or path, optional
        Compare every row with its checksum in this manifest, or (True) in the one beside the file:
        along the axis that it was written for.
    write_manifest : bool or path, optional
        Write one, unless the data are damaged.
    overwrite : bool
        Write over an existing manifest.
    progress : bool
        Show a bar on standard error.
    **opening
        `axis` (of several, places along the first are rows), `dtype`, `shape`, `offset` and
        `external` as in `oocdata.open`.

    Returns
    -------
    Health

    Raises
    ------
    oocdata.errors.MissingFileError, oocdata.errors.UnknownFormatError
        If there is no such file, or it is of no format that is known; among several files, the
        latter is a finding, as is one that holds no array of numbers.
    oocdata.errors.ManifestError
        If the manifest can't be read.
    oocdata.errors.ArgumentError
        If the arguments don't fit together, or the manifest to be written is there already.

    Notes
    -----
    Memory: blocks of 8 MiB, within half of the memory for batches (see `oocdata.set_memory`), or
    one row; and the decoded chunks that reading keeps.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = np.ones((100, 8), "f4")
    ...     rows[[3, 7, 8]] = np.nan
    ...     np.save(f"{folder}/a.npy", rows)
    ...     health = check(f"{folder}/a.npy")
    >>> [(finding.kind, finding.rows, finding.values) for finding in health.findings]
    [('nan', (range(3, 4), range(7, 9)), 24)]
    """
    given = Opening.of(target, key, **opening)
    if manifest and write_manifest:
        raise ArgumentError("`manifest` and `write_manifest` must not be given together.")
    if isinstance(given.target, Dataset):
        view = given.view()
        for argument, value in (("manifest", manifest), ("write_manifest", write_manifest)):
            if value:
                raise ArgumentError(
                    f"`{argument}` must be left out for {view!r}, whose rows are read; got "
                    f"{value!r}. Give the path."
                )
        return health_of(view, f"{given.name} ({which_rows(view)})", progress=progress)
    hints = {"missing": "A check tells it", "verify": "Give `manifest`"}
    if manifest or write_manifest:
        stored = "A manifest is of rows as they are stored"
        hints |= dict.fromkeys(("field", "decode", "pad", "pictures"), stored)
    for argument, hint in hints.items():
        if argument in given.arguments:
            value = given.arguments[argument]
            raise ArgumentError(f"`{argument}` must be left out; got {value!r}. {hint}.")
    axes = [given.axis] if isinstance(given.axis, int | str) else list(given.axis)
    given = Opening.of(given, axis=axes[0] if axes else 0)
    paths = given.paths()
    if len(paths) > 1 and any(one not in (None, True, False) for one in (manifest, write_manifest)):
        raise ArgumentError(
            "a manifest must be of one file; several have theirs beside each. Leave its path out."
        )
    found = Checks(progress)
    for path in paths:
        compared = manifest_of(manifest, path, "manifest")
        written = manifest_of(write_manifest, path, "write_manifest")
        found.add(replace(given, target=path), compared, written, overwrite)
    if len(found.refused) == len(paths):
        raise found.refused[0]
    arrays, wrong = tuple(found.datasets), tuple(found.findings)
    return Health(given.name, arrays, wrong, tuple(found.compared), tuple(found.written))
