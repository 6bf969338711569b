"""The two readers of a Zarr array: TensorStore where it can, zarr-python where it must.

TensorStore decodes in its own threads, outside the GIL, and is two to six times as fast as
zarr-python, chunk for chunk. It opens places (a folder, an archive, a URL) and knows the codecs of
the specification. zarr-python knows every codec that numcodecs has and any store object, and costs
a fraction of a millisecond for each box and chunk, which cross its event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import (
    OocdataError,
    SourceError,
    UnknownFormatError,
)
from oocdata.sources.handles import handle
from oocdata.sources.portions import wait_until_ended
from oocdata.sources.source import Layout
from oocdata.sources.zarr.folder_chunks import FolderChunks
from oocdata.sources.zarr.held import Held, calm
from oocdata.sources.zarr.stored import Described, StoredArray, rows_that_fail
from oocdata.sources.zarr.survey import absent_rows, missing_error
from oocdata.sources.zarr.tensorstore import (
    LIBRARY_ERRORS,
    first_line,
    shared_context,
    tensorstore,
)

__all__ = ["TensorStoreReader", "ZarrReader"]

_SYSTEM_TROUBLE = ("PERMISSION_DENIED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")


@dataclass(frozen=True, slots=True)
class TensorStoreReader(Described):
    """Boxes of a Zarr array, read by TensorStore (drivers ``zarr`` and ``zarr3``)."""

    stored: StoredArray

    @property
    def own_threads(self) -> bool:
        """Whether it decodes in threads of its own."""
        return self._here() is None

    def read_box(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the elements of a box.

        Raises
        ------
        oocdata.errors.MissingChunkError, oocdata.errors.DamagedChunkError
            With the rows that can't be read.
        """
        stored = self.stored
        stored.check_unchanged()
        array = handle(self, self._open)
        try:
            elements = self._read(array, box)
        except LIBRARY_ERRORS as error:
            raise self._failure(array, box, error) from error
        stored.check_objects([box])
        stored.check_unchanged()
        return elements

    def read_boxes(self, boxes: Sequence[tuple[slice, ...]], outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks straight into their places.

        Raises
        ------
        oocdata.errors.MissingChunkError, oocdata.errors.DamagedChunkError
            With the rows that can't be read.
        """
        self.stored.check_unchanged()
        here = self._here()
        left = range(len(boxes)) if here is None else here.read(boxes, outs)
        if left:
            others = [boxes[number] for number in left]
            self._read_all(others, [outs[number] for number in left])
            self.stored.check_objects(others)
            self.stored.check_unchanged()

    def _here(self) -> FolderChunks | None:
        """Return the chunks that can be read without TensorStore."""
        return handle((FolderChunks, self), lambda: FolderChunks.of(self.stored))

    def _read_all(self, boxes: Sequence[tuple[slice, ...]], outs: Sequence[NDArray[Any]]) -> None:
        """Read chunks by TensorStore, all of them under way at a time."""
        library = tensorstore()
        array = handle(self, self._open)
        started: list[Any] = []
        try:
            for box, out in zip(boxes, outs, strict=True):
                started.append(library.array(out).write(array[box].translate_to[0]))
            errors = [future.exception() for future in started]
        finally:
            wait_until_ended(started)
        for box, error in zip(boxes, errors, strict=True):
            if error is not None:
                raise self._failure(array, box, error) from error

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.stored.layout(
            "whole chunks, decoded outside Python's lock: plain files here, others by TensorStore"
        )

    def _read(self, array: Any, box: tuple[slice, ...]) -> NDArray[Any]:
        read: NDArray[Any] = array[box].read().result()
        return read

    def _open(self) -> Any:
        library = tensorstore()
        stored = self.stored
        specification: dict[str, Any] = {
            "driver": "zarr" if stored.metadata.version == 2 else "zarr3",
            "kvstore": stored.store.kvstore(stored.key),
            # Found in version 0.1.86: this also holds for chunks that a shard's index leaves out.
            "fill_missing_data_reads": stored.missing == "fill",
        }
        if stored.metadata.sharded:
            # Decoded chunks are kept by the chunk cache; what this one is for is the shards'
            # indices, which would be read again with every box.
            specification["cache_pool"] = "cache_pool#indices"
        try:
            array = library.open(
                specification, context=shared_context(), read=True, open=True
            ).result()
        except LIBRARY_ERRORS as error:
            raise UnknownFormatError(
                f"TensorStore must be able to open the array; {first_line(error)}. Was it moved or "
                "written again since `open`?",
                path=stored.store.path,
                key=stored.key or None,
            ) from error
        stored.check_shape(array.shape)
        return array

    def _failure(self, array: Any, box: tuple[slice, ...], error: Exception) -> SourceError:
        stored = self.stored
        status = str(error).partition(":")[0]

        def fails(part: tuple[slice, ...]) -> bool:
            try:
                self._read(array, part)
            except LIBRARY_ERRORS:
                return True
            return False

        rows = rows_that_fail(box, stored.axis, self.chunk_shape[stored.axis], fails)
        reason = first_line(error)
        if status == "NOT_FOUND":
            return missing_error(reason, stored.store, stored.key, stored.metadata, rows)
        if status in _SYSTEM_TROUBLE:
            return SourceError(
                f"stored chunks must be readable; {reason}.",
                path=stored.store.path,
                key=stored.key or None,
                rows=rows,
            )
        return stored.damaged(reason, rows)


@dataclass(frozen=True, slots=True)
class ZarrReader(Described):
    """Boxes of a Zarr array, read by zarr-python.

    Attributes
    ----------
    stored : StoredArray
    reason : str
        Why not by TensorStore.
    """

    stored: StoredArray
    reason: str

    def read_box(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the elements of a box.

        Raises
        ------
        oocdata.errors.MissingChunkError, oocdata.errors.DamagedChunkError
            With the rows that can't be read.
        """
        stored = self.stored
        stored.check_unchanged()
        array = handle(self, self._open)
        if stored.missing == "error":
            # zarr-python before 3.2 has no way to tell a missing chunk from one of fill values.
            absent = absent_rows(stored.store, stored.key, stored.metadata, box, stored.axis)
            if absent:
                raise missing_error(
                    "some are not there", stored.store, stored.key, stored.metadata, absent
                )
        try:
            elements = self._read(array, box)
        except OocdataError:
            raise
        except MemoryError:
            raise
        except Exception as error:  # each codec fails in its own way: zlib.error, LZMAError, …
            rows = rows_that_fail(
                box,
                stored.axis,
                self.chunk_shape[stored.axis],
                lambda part: _fails(self._read, array, part),
            )
            reason = f"{type(error).__name__}: {first_line(error)}"
            if isinstance(error, OSError) and error.errno is not None:
                raise SourceError(
                    f"stored chunks must be readable; {reason}.",
                    path=stored.store.path,
                    key=stored.key or None,
                    rows=rows,
                ) from error
            raise stored.damaged(reason, rows) from error
        stored.check_objects([box])
        stored.check_unchanged()
        return elements

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.stored.layout(f"chunks by zarr-python, because of {self.reason}")

    def _read(self, array: Any, box: tuple[slice, ...]) -> NDArray[Any]:
        read = np.asarray(array[box])
        return read.astype(self.dtype, copy=False)

    def _open(self) -> Any:
        stored = self.stored
        if isinstance(stored.store, Held):
            array = stored.store.array
        else:
            import zarr

            try:
                with calm():
                    array = zarr.open_array(
                        stored.store.zarr_store(),
                        path=stored.key,
                        mode="r",
                        zarr_format=3 if stored.metadata.version == 3 else 2,
                    )
            except OocdataError:
                raise
            except Exception as error:
                raise UnknownFormatError(
                    "zarr-python must be able to open the array; "
                    f"{type(error).__name__}: {first_line(error)}.",
                    path=stored.store.path,
                    key=stored.key or None,
                ) from error
        stored.check_shape(array.shape)
        return array


def _fails(
    read: Callable[[Any, tuple[slice, ...]], Any], array: Any, box: tuple[slice, ...]
) -> bool:
    try:
        read(array, box)
    except Exception:  # the first failure is what is reported; this only asks where
        return True
    return False
