"""Open an array of Zarr v2 or v3 as a source, from its metadata, without importing zarr-python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Source, Storage
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.patterns import Missing
from oocdata.formats.zarr.chunk_files import chunk_files
from oocdata.formats.zarr.metadata import ArrayMetadata
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import ZarrReader
from oocdata.formats.zarr.shards import reader_of
from oocdata.formats.zarr.store import Store


def open_array(
    store: Store,
    key: str,
    metadata: ArrayMetadata,
    axis: int | str,
    missing: Missing | None,
    opened: dict[str, Any] | None,
) -> Source:
    """Open an array in a store, from its metadata.

    Errors call positions along the first of `axis` rows. A chunk that is not stored reads as the
    fill value, with one `MissingChunkWarning`. With ``missing="fill"`` there is no warning; with
    ``"error"`` it is an error, at open where a survey is cheap (up to 32,768 stored objects on
    disk), else when it is read. `opened` are the arguments of `oocdata.open` for the storage.
    """
    if metadata.dtype.kind == "O" and not metadata.shape:
        raise UnsupportedDtypeError(
            "elements must be numbers of a fixed size; got text of varying length."
        )
    described = Storage("Zarr", store.path, key or None, dimensions=metadata.dimensions)
    objects = Objects(store, key, metadata, axis_numbers(axis, len(metadata.shape), described)[0])
    objects.survey(refuse=missing == "error")
    reader = reader_of(objects, missing, opened)
    if metadata.dtype.kind == "O":
        from oocdata.formats.hdf5.varying import texts_in_memory, varying_rows_error

        texts = texts_in_memory(_texts(reader), reader.shape, reader.storage())
        if texts is None:
            raise varying_rows_error(reader.storage(), reader.shape)
        return texts
    return chunk_files(reader) or Chunked(reader)


def _texts(reader: ZarrReader) -> Iterator[NDArray[Any]]:
    """Yield texts of varying length as UTF-8, the form of HDF5, a row of chunks at a time."""
    (length, *others), steps = reader.shape, reader.chunk_shape
    for start in range(0, length, steps[0]):
        texts = np.empty((min(steps[0], length - start), *others), object)
        places = np.indices(chunk_grid(texts.shape, steps)).reshape(len(steps), -1).T
        outs = [
            texts[tuple(slice(at, at + n) for at, n in zip(origin, steps, strict=True))]
            for origin in (places * steps).tolist()
        ]
        places[:, 0] = start // steps[0]
        reader.read_chunks(places, outs)
        texts.reshape(-1)[:] = [str(text).encode() for text in texts.flat]
        yield texts
