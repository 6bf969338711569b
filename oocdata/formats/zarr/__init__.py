"""Open Zarr v2 and v3 arrays and groups by path, by URL, or as an open ``zarr.Array``.

``hierarchy`` opens an array in a ``store`` (or a ``user_store``), from its ``metadata`` and
``codecs``; ``objects`` knows which chunks exist and whether one has changed; ``readers`` decode
chunks, ``shards`` those of shards, ``remote`` those in object stores; ``chunk_files`` reads rows of
uncompressed chunks.
"""

from oocdata.formats.zarr.hierarchy import ZarrTree, from_array

__all__ = ["ZarrTree", "from_array"]
