"""Zarr v2 and v3: arrays and groups by path, URL or open ``zarr.Array``.

``opening`` describes an array as a source from its ``metadata`` alone, in a ``store`` or one that
the user ``held`` open, found in its ``hierarchy``, with what ``survey`` finds missing; ``codecs``
says who can decode it, and ``readers`` read it.
"""

from oocdata.sources.zarr.opening import from_array, list_zarr, open_zarr

__all__ = ["from_array", "list_zarr", "open_zarr"]
