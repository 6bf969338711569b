"""`oocdata check`: read everything once, and say what is wrong with which rows.

A check goes on after each fault, and does not change anything. With a manifest it compares the
files byte by byte with what they were, and where they differ, the rows too.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import DTypeLike

from oocdata.datasets.spec import as_dtype
from oocdata.errors import ArgumentError, MissingFileError
from oocdata.formats.opening import Axis
from oocdata.tools.info import Opening, Unopened

__all__ = ["KINDS", "NOTES", "Checked", "Finding", "Health", "check"]

KINDS = {
    "truncated": "bytes that must be there are beyond the end of a file",
    "missing": "a file, or a part of another one, is not there",
    "damaged": "bytes do not decode, or fail the checksum of their format",
    "unreadable": "the system, or the format's library, can't read it",
    "trailing": "a file is longer than it must be",
    "changed": "not what the manifest says",
    "added": "a file that the manifest does not know",
    "unwritten": "never written, and read as the fill value",
    "nan": "numbers that are NaN",
    "inf": "numbers that are infinite",
    "sparse": "no bytes on the disk, and read as zero",
}
"""What a finding can be; the worst first."""

NOTES = ("sparse",)
"""Findings that are told, and wrong only if something else was to be there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, with all rows that it concerns.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    path : str
        The file.
    key : str or None
        The dataset in it; None where it concerns the file, or there is only one.
    rows : tuple of range
        The first 10,000 runs of rows; empty where no row can be named.
    row_count : int
        All of them.
    values : int or None
        Numbers, for "nan" and "inf".
    reason : str
        What must hold, and what came; of several faults the first.
    """

    kind: str
    path: str
    key: str | None
    rows: tuple[range, ...]
    row_count: int
    values: int | None
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Return it for ``json.dumps``: rows as ``[[first, one past the last], …]``.

        Examples
        --------
        >>> Finding("nan", "a.npy", None, (range(3, 5),), 2, 7, "").as_json()["rows"]
        [[3, 5]]
        """
        rows = [[part.start, part.stop] for part in self.rows]
        return {name: getattr(self, name) for name in self.__slots__} | {"rows": rows}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Finding:
        """Return what `as_json` wrote."""
        return cls(**{**found, "rows": tuple(range(*part) for part in found["rows"])})


@dataclass(frozen=True, slots=True)
class Checked:
    """A dataset that was checked.

    Attributes
    ----------
    path : str
    key : str or None
    shape : tuple of int
        ``(rows, *element)``.
    dtype : str
    nbytes : int
        Of all rows, in memory.
    """

    path: str
    key: str | None
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Health:
    """What a check found; ``print`` it.

    Attributes
    ----------
    path : str
        As it was given.
    datasets : tuple of Checked
    unchecked : tuple of Unopened
        What is no array of numbers, or needs what is not allowed or installed, with the reason.
    findings : tuple of Finding
    compared : tuple of str
        Manifests that the files were compared with.
    written : tuple of str
        Manifests that were written.
    """

    path: str
    datasets: tuple[Checked, ...]
    unchecked: tuple[Unopened, ...]
    findings: tuple[Finding, ...]
    compared: tuple[str, ...] = ()
    written: tuple[str, ...] = ()

    def healthy(self, allow: Collection[str] = ()) -> bool:
        """Return whether nothing was found but notes, and what is allowed.

        Parameters
        ----------
        allow : collection of str
            Of `KINDS`.
        """
        return all(finding.kind in (*NOTES, *allow) for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return everything that was found, for ``json.dumps``."""
        return {
            **asdict(self),
            "healthy": self.healthy(),
            "findings": [finding.as_json() for finding in self.findings],
        }

    def __str__(self) -> str:
        from oocdata.tools.check.text import health_text

        return health_text(self)


def check(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    key: str | None = None,
    *,
    axis: Axis = 0,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    offset: int = 0,
    external: bool = False,
    manifest: bool | str | os.PathLike[str] | None = None,
    write_manifest: bool | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Health:
    """Read everything once and say what is wrong with which rows.

    Parameters
    ----------
    path : path, URL or glob, or list of them
        Each file is checked for itself.
    key : str, optional
        The dataset in it; all of them otherwise.
    axis, dtype, shape, offset, external
        As in `oocdata.open`; one axis, whose places are rows.
    manifest : bool or path, optional
        Compare the files with this manifest, or (True) the one beside them. Where every byte is
        what it was, nothing is decoded: what was found when it was written holds still.
    write_manifest : bool or path, optional
        Write one, unless the data are damaged. The files are read a second time for it.
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
        If there is no such file, or it is of no format that is known.
    oocdata.errors.ManifestError
        If the manifest can't be read.
    oocdata.errors.ArgumentError
        If the arguments don't fit together, or the manifest to be written is there already.

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
    from oocdata.tools.check.file import check_file

    several: list[Any] = list(path) if isinstance(path, list | tuple) else [path]
    if not several or not all(isinstance(one, str | os.PathLike) for one in several):
        raise ArgumentError(
            f"`path` must be the path of a file or folder, or a list of them; got {path!r}."
        )
    named = None if dtype is None else as_dtype(dtype).str
    lengths = None if shape is None else tuple(int(length) for length in shape)
    if (named is None) != (lengths is None):
        raise ArgumentError("`dtype` and `shape` must be given together, for raw binary.")
    if manifest and write_manifest:
        raise ArgumentError("`manifest` and `write_manifest` must not be given together.")
    opening = Opening(axis, named, lengths, offset, "fill", external)
    targets = [os.path.expanduser(os.fspath(one)) for one in several]
    paths: list[str] = []
    for target in targets:
        found = [target]
        if not os.path.exists(target) and "://" not in target and glob.has_magic(target):
            found = sorted(glob.glob(target))
        if not found:
            raise MissingFileError("a glob must match at least one file; got none.", path=target)
        paths += found
    if len(paths) > 1 and any(one not in (None, True, False) for one in (manifest, write_manifest)):
        raise ArgumentError(
            "a manifest must be of one file; a glob's have theirs beside each. Leave its path out."
        )
    parts = [
        check_file(
            one, key, opening, manifest, write_manifest, overwrite=overwrite, progress=progress
        )
        for one in paths
    ]
    return Health(
        ", ".join(targets),
        *(
            tuple(found for part in parts for found in getattr(part, name))
            for name in ("datasets", "unchecked", "findings", "compared", "written")
        ),
    )
