"""Zarr v2 and v3: arrays and groups by path, URL or open ``zarr.Array``.

``opening`` finds an array in a ``hierarchy`` of a ``store`` (or one that the user ``held`` open),
from its ``metadata`` and ``codecs`` alone; ``objects`` tells which chunks are there and whether one
has changed; ``direct`` decodes chunks for the chunked engine, or zarr-python where it must
(``readers``), ``remote`` those of a store; ``chunk_files`` reads rows where nothing need be
decoded.
"""

from oocdata.formats.zarr.opening import from_array, list_zarr, open_zarr

__all__ = ["from_array", "list_zarr", "open_zarr"]
