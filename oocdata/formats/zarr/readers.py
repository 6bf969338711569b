"""Read the chunks of a Zarr array: by TensorStore where it can, by zarr-python where it must.

TensorStore decodes in its own threads, outside the GIL, and is two to six times as fast as
zarr-python, chunk for chunk. It opens places (a folder, an archive, a URL) and knows the codecs of
the specification. zarr-python knows every codec that numcodecs has and any store object, and costs
a fraction of a millisecond for each chunk, which crosses its event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import (
    OocdataError,
)
from oocdata.formats.zarr.held import Held, calm
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.stored import Missing, StoredArray
from oocdata.formats.zarr.tensorstore import (
    INDEX_POOL,
    LIBRARY_ERRORS,
    first_line,
    shared_context,
    tensorstore,
    usable,
)
from oocdata.memory import scratch_share

__all__ = ["TensorStoreReader", "ZarrReader"]

_SYSTEM_TROUBLE = ("PERMISSION_DENIED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
_CHUNKS_AT_ONCE = 64

_Failure: TypeAlias = tuple[int, Exception]
"""The place of a chunk among those asked for, and why it can't be read."""


class TensorStoreReader(StoredArray):
    """Chunks of a Zarr array, read by TensorStore (drivers ``zarr`` and ``zarr3``)."""

    own_threads = True

    def __init__(
        self,
        objects: Objects,
        missing: Missing | None = None,
        opened: dict[str, Any] | None = None,
    ) -> None:
        how = "whole chunks, decoded by TensorStore outside Python's lock"
        super().__init__(objects, missing, how, opened)

    def __getstate__(self) -> dict[str, Any]:
        lazy = ("_strict", "_filling", "_by_zarr")
        return {name: value for name, value in self.__dict__.items() if name not in lazy}

    @cached_property
    def _strict(self) -> Any:
        return self._open(fill=False)

    @cached_property
    def _filling(self) -> Any:
        return self._open(fill=True)

    @cached_property
    def _by_zarr(self) -> ZarrReader:
        reader = ZarrReader(self.objects, self.missing, "a fork")
        reader.told = self.told
        return reader

    def _decode(
        self,
        places: NDArray[np.int64],
        boxes: Sequence[tuple[slice, ...]],
        outs: Sequence[NDArray[Any]],
    ) -> None:
        if not usable():
            self._by_zarr._decode(places, boxes, outs)
            return
        failures = self._read(
            self._filling if self.missing == "fill" else self._strict, boxes, outs
        )
        if not failures:
            return
        absent = [number for number, error in failures if _status(error) == "NOT_FOUND"]
        if len(absent) == len(failures):
            self._check_absent(places[absent], first_line(failures[0][1]))
            some = [boxes[number] for number in absent]
            failures = self._read(self._filling, some, [outs[number] for number in absent])
            if not failures:
                return
            places = places[absent]
        failures = [
            (n, error) for n, error in failures if _status(error) != "NOT_FOUND"
        ] or failures
        error = failures[0][1]
        raise self._failed(
            first_line(error),
            places[[number for number, _ in failures]],
            damaged=_status(error) not in _SYSTEM_TROUBLE,
        ) from error

    def _read(
        self, array: Any, boxes: Sequence[tuple[slice, ...]], outs: Sequence[NDArray[Any]]
    ) -> list[_Failure]:
        """Read boxes, some under way at a time; return which failed."""
        library = tensorstore()
        failures: list[_Failure] = []
        # Each takes what is stored and one decoded copy; and each opens a file.
        chunk_bytes = prod(self.chunk_shape) * self.dtype.itemsize
        most = max(1, min(_CHUNKS_AT_ONCE, scratch_share() // (2 * chunk_bytes)))
        started: deque[tuple[int, Any]] = deque()

        def end_first() -> None:
            number, future = started[0]
            error = future.exception()
            started.popleft()
            if error is not None:
                failures.append((number, error))

        try:
            for number, (box, out) in enumerate(zip(boxes, outs, strict=True)):
                if len(started) == most:
                    end_first()
                write = library.array(out).write(array[box].translate_to[0])
                started.append((number, write))
            while started:
                end_first()
        finally:
            # An interrupt doesn't end the waiting: nobody may have `outs` until nothing writes.
            for _, future in started:
                while not future.done():
                    with suppress(KeyboardInterrupt):
                        future.exception()
        return failures

    def _open(self, *, fill: bool) -> Any:
        library = tensorstore()
        metadata = self.objects.metadata
        specification: dict[str, Any] = {
            "driver": "zarr" if metadata.version == 2 else "zarr3",
            "kvstore": self.objects.store.kvstore(self.objects.key),
            # Found in version 0.1.86: this also holds for chunks that a shard's index leaves out.
            "fill_missing_data_reads": fill,
        }
        if metadata.sharded:
            # Decoded chunks are kept by the chunk cache; what this one is for is the shards'
            # indices, which would be read again with every chunk.
            specification["cache_pool"] = INDEX_POOL
        try:
            array = library.open(
                specification, context=shared_context(), read=True, open=True
            ).result()
        except LIBRARY_ERRORS as error:
            reason = "TensorStore must be able to open the array"
            raise self._unreadable(error, reason) from error
        self._check_shape(array.shape)
        return array


class ZarrReader(StoredArray):
    """Chunks of a Zarr array, read by zarr-python.

    Parameters
    ----------
    objects : Objects
    missing : {"error", "fill"} or None
    reason : str
        Why not by TensorStore.
    """

    def __init__(
        self,
        objects: Objects,
        missing: Missing | None,
        reason: str,
        opened: dict[str, Any] | None = None,
    ) -> None:
        how = f"whole chunks, by zarr-python because of {reason}"
        super().__init__(objects, missing, how, opened)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_array"}

    def _decode(
        self,
        places: NDArray[np.int64],
        boxes: Sequence[tuple[slice, ...]],
        outs: Sequence[NDArray[Any]],
    ) -> None:
        array = self._array
        failures: list[_Failure] = []
        for number, (box, out) in enumerate(zip(boxes, outs, strict=True)):
            try:
                out[...] = array[box]
            except (OocdataError, MemoryError):
                raise
            except Exception as error:  # each codec fails in its own way: zlib.error, LZMAError, …
                failures.append((number, error))
        if failures:
            first = failures[0][1]
            raise self._failed(
                f"{type(first).__name__}: {first_line(first)}",
                places[[number for number, _ in failures]],
                damaged=not (isinstance(first, OSError) and first.errno is not None),
            ) from first
        if not self.told or self.missing == "error":
            # zarr-python before 3.2 has no way to tell a missing chunk from one of fill values.
            alike = [number for number, out in enumerate(outs) if _is_constant(out)]
            if alike:
                absent = self.objects.absent(places[alike])
                if absent.any():
                    self._check_absent(places[alike][absent])

    @cached_property
    def _array(self) -> Any:
        store = self.objects.store
        if isinstance(store, Held):
            array = store.array
        else:
            import zarr

            try:
                with calm():
                    array = zarr.open_array(
                        store.zarr_store(),
                        path=self.objects.key,
                        mode="r",
                        zarr_format=3 if self.objects.metadata.version == 3 else 2,
                    )
            except OocdataError:
                raise
            except Exception as error:
                reason = "zarr-python must be able to open the array"
                raise self._unreadable(error, reason) from error
        self._check_shape(array.shape)
        return array


def _status(error: Exception) -> str:
    return str(error).partition(":")[0]


def _is_constant(chunk: NDArray[Any]) -> bool:
    first = chunk[(slice(0, 1),) * chunk.ndim]
    return bool((chunk == first).all() or ((chunk != chunk).all()))
