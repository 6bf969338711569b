"""One Zarr array, where it lies and what is known of it: what its two readers have in common."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Hashable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.source import Storage
from oocdata.errors import (
    DamagedChunkError,
    MissingChunkWarning,
    MissingFileError,
    SourceError,
    UnknownFormatError,
)
from oocdata.formats.dimensions import as_stored, packing
from oocdata.formats.zarr.held import Held
from oocdata.formats.zarr.objects import Objects, Survey
from oocdata.formats.zarr.tensorstore import first_line

__all__ = ["Missing", "StoredArray"]

Missing: TypeAlias = Literal["error", "fill"]


class StoredArray:
    """One array, where it lies and what is known of it: what both readers have in common.

    Parameters
    ----------
    objects : Objects
    missing : {"error", "fill"} or None
        None: absent chunks are read as the fill value, and told once.
    how : str
        How it is read, in words.
    opened : dict, optional
        What opens it again (`Storage.opened`).
    """

    own_threads = False

    def __init__(
        self,
        objects: Objects,
        missing: Missing | None,
        how: str,
        opened: dict[str, Any] | None = None,
    ) -> None:
        metadata = objects.metadata
        self.objects = objects
        self.missing = missing
        self.key = objects.key or None
        self.file = objects.store.file(
            objects.name_of("zarr.json" if metadata.version == 3 else ".zarray")
        )
        self.shape = metadata.shape
        self.dtype = metadata.dtype
        self.chunk_shape = tuple(
            max(1, min(step, length))
            for step, length in zip(metadata.chunk_shape, metadata.shape, strict=True)
        )
        self.told = missing == "fill"
        """Whether absent chunks need not be told, or have been."""
        survey = objects.surveyed
        absent = "" if survey is None else self._tell(survey)
        # Where the objects were not all asked for, nothing tells this content from an earlier one.
        known: Hashable = objects.digest() if survey is not None and self.file else uuid.uuid4().hex
        if isinstance(objects.store, Held):
            known = objects.store  # equal only to itself
        self._identity = (type(self), objects.store.path, objects.key, self.file, missing, known)
        packed = packing(metadata.annotations.attributes)
        self._storage = Storage(
            format=f"Zarr v{metadata.version}",
            path=objects.store.path,
            key=self.key,
            layout=metadata.layout,
            codec=metadata.codec,
            stored_bytes=None if survey is None else survey.stored_bytes,
            reading=how + absent + as_stored(packed),
            chunks=self.chunk_shape,
            dimensions=metadata.dimensions,
            packed=packed,
            files=() if self.file is None else (self.file,),
            version="" if survey is None else objects.digest().hex(),
            table_bytes=objects.nbytes,
            opened=opened,
            annotations=metadata.annotate,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredArray) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self._storage

    def check(self) -> None:
        """Raise if the array was written anew, or deleted: an epoch would mix old and new chunks.

        Raises
        ------
        oocdata.errors.SourceError, oocdata.errors.MissingFileError
        """
        if self.file is None:
            return
        try:
            status = os.stat(self.file.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFileError(
                "the array must be there while it is read; it was deleted.",
                path=self.objects.store.path,
                key=self.key,
            ) from error
        self.file.compare(status, self.key)

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks; see `oocdata.engines.chunked.ChunkReader`.

        Raises
        ------
        oocdata.errors.MissingChunkError, oocdata.errors.DamagedChunkError
            With the rows that can't be read.
        """
        numbers = self.objects.numbers(places)
        self.objects.note(numbers)
        starts = places * self.chunk_shape
        stops = np.minimum(starts + self.chunk_shape, self.shape)
        boxes = [
            tuple(map(slice, start, stop))
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        self._decode(places, boxes, outs)
        self.objects.compare(numbers)

    def _decode(
        self,
        places: NDArray[np.int64],
        boxes: Sequence[tuple[slice, ...]],
        outs: Sequence[NDArray[Any]],
    ) -> None:
        raise NotImplementedError

    def _tell(self, survey: Survey) -> str:
        """Warn of absent objects; return what to say of them wherever the array is described."""
        if not survey.absent:
            return ""
        what = f"{survey.absent} of {survey.total} stored objects"
        self._warn(what)
        return f"; {what} are absent and read as the fill value"

    def _warn(self, what: str) -> None:
        if self.told:
            return
        self.told = True
        fill_value = self.objects.metadata.fill_value
        where = f" of {self.key!r}" if self.key else ""
        warnings.warn(
            MissingChunkWarning(
                f"{what} of the Zarr array{where} in '{self.objects.store.path}' are absent, and "
                f"are read as its fill value {fill_value}. Writers leave out chunks that hold "
                'nothing else; if so, open with missing="fill". If chunks may have been lost, open '
                'with missing="error".'
            ),
            stacklevel=2,
        )

    def _check_absent(self, places: NDArray[np.int64], what: str = "some are not there") -> None:
        """Refuse or tell chunks that are absent."""
        if self.missing == "error":
            raise self.objects.missing(what, places)
        self.objects.compare(self.objects.numbers(places))  # those that were there at open are lost
        self._warn("some chunks")

    def _check_shape(self, shape: Sequence[int]) -> None:
        if tuple(shape) != self.shape:
            raise UnknownFormatError(
                f"the array must keep the shape {self.shape} it had at `open`; it is now "
                f"{tuple(shape)}. Open it again.",
                path=self.objects.store.path,
                key=self.key,
            )

    def _unreadable(self, error: Exception, reason: str) -> UnknownFormatError:
        return UnknownFormatError(
            f"{reason}; {type(error).__name__}: {first_line(error)}. Was it moved or written again "
            "since `open`?",
            path=self.objects.store.path,
            key=self.key,
        )

    def _failed(self, reason: str, places: NDArray[np.int64], *, damaged: bool) -> SourceError:
        kind, message = SourceError, f"stored chunks must be readable; {reason}."
        if damaged:
            kind = DamagedChunkError
            message = f"every chunk must decode; {reason}. Restore the file from a copy."
        return kind(
            message, path=self.objects.store.path, key=self.key, **self.objects.rows(places)
        )
