"""Write a manifest atomically; see `oocdata.formats.manifest` for the format."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.engines.atomic import atomic_file
from oocdata.errors import ArgumentError
from oocdata.formats.manifest import CHECKSUM, FORMAT, RowChecksums, unit_rows
from oocdata.writers.disk import write_errors

__all__ = ["TableWriter", "manifest_writer"]

TableWriter: TypeAlias = Callable[
    [View], AbstractContextManager[Callable[[NDArray[np.uint64]], object]]
]
"""Open the table of a view; the context is a function to call with the checksums, in order."""


@contextmanager
def manifest_writer(target: str, path: str, *, overwrite: bool) -> Iterator[TableWriter]:
    """Write a manifest; the file appears, complete and synced, unless the context raises."""
    full_path, data = os.path.abspath(path), os.path.realpath(target)
    if os.path.join(os.path.realpath(path), "").startswith(os.path.join(data, "")):
        raise ArgumentError(f"a manifest must be beside the data, not in it; got '{path}'.")
    if not overwrite and os.path.lexists(full_path):
        raise ArgumentError(
            f"the manifest '{full_path}' must not exist yet; it does. Pass overwrite=True to "
            "replace it."
        )
    datasets: list[RowChecksums] = []
    with (
        write_errors(full_path),
        atomic_file(full_path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
    ):

        @contextmanager
        def table(view: View) -> Iterator[Callable[[NDArray[np.uint64]], object]]:
            unit, member = unit_rows(view.shape, view.dtype), f"rows/{len(datasets)}"
            dtype = view.dtype.newbyteorder("<").str
            rows = RowChecksums(view.storage.key, view.shape, dtype, view.axes[0], unit, member)
            header: Any = {"descr": "<u8", "fortran_order": False, "shape": (rows.units,)}
            with archive.open(f"{member}.npy", "w", force_zip64=True) as file:
                npy_format.write_array_header_1_0(file, header)
                yield lambda checksums: file.write(checksums.astype("<u8", copy=False).tobytes())
            datasets.append(rows)

        yield table
        header = {
            "format": FORMAT,
            "checksum": CHECKSUM,
            "name": os.path.basename(target.rstrip("/")),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "datasets": [asdict(rows) for rows in datasets],
        }
        archive.writestr("manifest.json", json.dumps(header, allow_nan=False))
