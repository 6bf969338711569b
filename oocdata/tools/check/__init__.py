"""Check files for damage: read all rows once, and report what is wrong with which rows.

A check continues after each fault, and changes nothing. With a manifest, it compares every row with
its checksum.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from oocdata.datasets.dataset import Dataset
from oocdata.errors import ArgumentError
from oocdata.formats.verified import manifest_of
from oocdata.index import as_flag
from oocdata.tools.check.file import Checks, health_of
from oocdata.tools.check.result import KINDS, NOTES, CheckedDataset, Finding, Health
from oocdata.tools.opening import Opening

__all__ = ["KINDS", "NOTES", "CheckedDataset", "Finding", "Health", "check"]


def check(
    target: Any,
    key: str | None = None,
    *,
    manifest: bool | str | os.PathLike[str] | None = None,
    write_manifest: bool | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Health:
    """Read all rows once, and report what is wrong with which rows.

    Parameters
    ----------
    target : path, URL, glob, list of them, or View
        Several files are checked one by one. Of a View only the rows are checked, and named by
        their positions in it; give the path to check the file itself.
    key : str, optional
        The dataset in the file; by default, all datasets.
    manifest : bool or path, optional
        Compare every row with its checksum in this manifest, or (True) in the one beside the file,
        along the axis that the manifest was written for.
    write_manifest : bool or path, optional
        Write a manifest, unless the data are damaged.
    overwrite : bool
        Write over an existing manifest.
    progress : bool
        Show a bar on standard error.

    Returns
    -------
    Health

    Raises
    ------
    oocdata.errors.MissingFileError, oocdata.errors.UnknownFormatError
        If there is no such file, or its format is not known. Among several files, an unknown
        format is a finding, as is a file without an array of numbers.
    oocdata.errors.ManifestError
        If the manifest can't be read.
    oocdata.errors.ArgumentError
        If the arguments don't fit together, or the manifest to be written exists.

    Notes
    -----
    Memory: blocks of 8 MiB, or one row, within half of the memory for batches (see
    `oocdata.set_memory`), and the cache of decoded chunks.

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
    source = Opening.of(target, key)
    if manifest and write_manifest:
        raise ArgumentError("`manifest` and `write_manifest` must not be given together.")
    progress = as_flag("progress", progress)
    if isinstance(source.target, Dataset):
        view = source.view()
        for argument, value in (("manifest", manifest), ("write_manifest", write_manifest)):
            if value:
                raise ArgumentError(
                    f"`{argument}` must be left out for {view!r}, whose rows are read; got "
                    f"{value!r}. Give the path."
                )
        return health_of(view, source.name, progress=progress)
    refused = {"missing"}
    if manifest or write_manifest:  # of rows as they are stored
        refused |= {"field", "decode", "pad", "pictures"}
    for name in sorted(refused & {*source.arguments}):
        raise ArgumentError(
            f"`{name}` must be left out: chunks and rows are compared as they are stored."
        )
    axis = source.axis if isinstance(source.axis, int | str | None) else (*source.axis, 0)[0]
    single = 0 if manifest or write_manifest else None  # checksums are of rows
    source = Opening.of(source, axis=single if axis is None else axis)
    paths = source.paths()
    has_path = any(isinstance(one, str | os.PathLike) for one in (manifest, write_manifest))
    if len(paths) > 1 and has_path:
        raise ArgumentError(
            "a manifest must be of one file; several files have one beside each. Leave its path "
            "out."
        )
    checks = Checks(progress)
    for path in paths:
        compared = manifest_of(manifest, path, "manifest")
        written = manifest_of(write_manifest, path, "write_manifest")
        checks.add(replace(source, target=path), compared, written, as_flag("overwrite", overwrite))
    if len(checks.refused) == len(paths):
        raise checks.refused[0]
    datasets, findings = tuple(checks.datasets), tuple(checks.findings)
    return Health(source.name, datasets, findings, tuple(checks.compared), tuple(checks.written))
