"""Open Zarr v2 and v3 arrays and groups by path, by URL, or as an open ``zarr.Array``.

``opening`` finds an array in a ``hierarchy`` of a ``store`` (or a ``user_store``), from
its ``metadata`` and ``codecs``; ``objects`` knows which chunks exist and whether one has changed;
``readers`` decode chunks for the chunked engine, ``shards`` those of shards, ``remote`` those in
object stores; ``chunk_files`` reads rows of uncompressed chunks.
"""

from oocdata.formats.zarr.opening import from_array, list_zarr, open_zarr

__all__ = ["from_array", "list_zarr", "open_zarr"]
