"""The demonstration's data: handwritten digits that move by known physics, in three formats.

The images are the 8×8 digits that scikit-learn ships (UCI Optical Recognition of Handwritten
Digits). Two of them fly over a square field at constant velocity and bounce off its walls, as in
Moving MNIST [1]_, at positions between the pixels. A clip is a pure function of (seed, clip
number), so any frame can be made again.

References
----------
.. [1] N. Srivastava, E. Mansimov, R. Salakhutdinov, "Unsupervised Learning of Video Representations
   using LSTMs", ICML 2015.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import MissingDependencyError, OocdataError

__all__ = ["Clips", "Written", "check_disk", "checksums", "write_formats"]

_CLIPS_AT_A_TIME = 16
_DIGITS_PER_CLIP = 2
_PIXELS = 8
_UPSCALE = 3
_SIZE = (_PIXELS + 1) * _UPSCALE - 1
"""Places that an enlarged digit covers along each axis."""

_SPEED = (1.0, 3.0)
"""Pixels per frame."""

DISK_LIMIT = 2 << 30
"""Bytes that all files together may take."""


@dataclass(frozen=True)
class Clips:
    """Clips of two bouncing digits.

    Parameters
    ----------
    count : int
        Clips.
    frames : int
        Frames in a clip: an episode.
    side : int
        Pixels along a side of the field.
    seed : int

    Examples
    --------
    >>> clips = Clips(count=10, frames=20)
    >>> clips.shape
    (200, 64, 64)
    >>> clips.render(3).dtype, bool(clips.render(3).max() > 0.5)
    (dtype('float32'), True)
    """

    count: int
    frames: int = 20
    side: int = 64
    seed: int = 7

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(rows, side, side)``: all clips end to end."""
        return (self.count * self.frames, self.side, self.side)

    @property
    def nbytes(self) -> int:
        """Bytes of all frames in memory."""
        return self.count * self.frames * self.side * self.side * 4

    @cached_property
    def digits(self) -> NDArray[np.float32]:
        """The images, shape (1797, 8, 8), from 0 to 1."""
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise MissingDependencyError(
                f"the demonstration's digits come from scikit-learn; {error}. Install it: "
                "pip install 'oocdata[demo]'."
            ) from error
        images: NDArray[np.float32] = np.asarray(load_digits().images / 16, np.float32)
        return images

    def choice(self, clip: int) -> range:
        """Return the numbers of the digits that a clip may show.

        Each fifth of the clips has a fifth of the digits, so that none is in two parts of a split.
        """
        fifth, digits = clip * 5 // self.count, len(self.digits)
        return range(fifth * digits // 5, (fifth + 1) * digits // 5)

    def render(self, clip: int) -> NDArray[np.float32]:
        """Return one clip, shape (frames, side, side), from 0 to 1.

        A digit's centre moves on a straight line that is folded at the walls, which is what
        constant velocity with elastic reflection gives. It is drawn by linear interpolation, so it
        may lie between pixels.
        """
        rng = np.random.default_rng([self.seed, clip])
        time = np.arange(self.frames)
        made = np.zeros((self.frames, self.side, self.side), np.float32)
        room = self.side - _SIZE
        for number in rng.choice(self.choice(clip), _DIGITS_PER_CLIP):
            angle, speed = rng.uniform(0, 2 * np.pi), rng.uniform(*_SPEED)
            lines = [
                _reflected(rng.uniform(0, room) + time * speed * part, room)
                for part in (np.sin(angle), np.cos(angle))
            ]
            rows, columns = (_interpolation(line, self.side) for line in lines)
            np.maximum(made, rows @ self.digits[number] @ columns.transpose(0, 2, 1), out=made)
        return made

    def slabs(self) -> Iterator[NDArray[np.float32]]:
        """Yield all frames in order, a few clips at a time."""
        for start in range(0, self.count, _CLIPS_AT_A_TIME):
            stop = min(start + _CLIPS_AT_A_TIME, self.count)
            yield np.concatenate([self.render(clip) for clip in range(start, stop)])


def _reflected(line: NDArray[np.float64], room: float) -> NDArray[np.float64]:
    """Return positions on a line folded into [0, room]: elastic reflection at both walls."""
    folded: NDArray[np.float64] = room - np.abs(line % (2 * room) - room)
    return folded


def _interpolation(offsets: NDArray[np.float64], side: int) -> NDArray[np.float32]:
    """Return matrices (frames, side, 8) that draw an image's axis, enlarged, at each offset."""
    # A pixel's light falls off over _UPSCALE places to either side of its centre.
    places = (np.arange(side) - offsets[:, None] - (_UPSCALE - 1)) / _UPSCALE
    sources = np.arange(_PIXELS)
    weights: NDArray[np.float32] = np.maximum(0, 1 - np.abs(places[:, :, None] - sources)).astype(
        np.float32
    )
    return weights


def checksums(rows: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each row's bytes, shape (n,).

    Examples
    --------
    >>> row = np.frombuffer(b"123456789", np.uint8)
    >>> [hex(number) for number in checksums(row[np.newaxis])]
    ['0xcbf43926']
    """
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    return np.array([zlib.crc32(row.data) for row in flat], np.uint32)


@dataclass(frozen=True, slots=True)
class Written:
    """Files with the same frames.

    Attributes
    ----------
    paths : dict of str to Path
        By the format's name.
    sums : ndarray of uint32, shape (rows,)
        The checksum of each frame, from the array that was written.
    """

    paths: dict[str, Path]
    sums: NDArray[np.uint32]

    def disk_bytes(self, name: str) -> int:
        """Return the bytes that a format takes on disk."""
        path = self.paths[name]
        files = [path] if path.is_file() else [part for part in path.rglob("*") if part.is_file()]
        return sum(part.stat().st_size for part in files)


class _Writer(Protocol):
    def __call__(self, rows: NDArray[np.float32], start: int) -> None: ...


def write_formats(
    clips: Clips, folder: Path, advance: Callable[[int], None] = lambda frames: None
) -> Written:
    """Write all clips as ``.npy``, HDF5 and Zarr v3, a few clips in memory at a time.

    Parameters
    ----------
    clips : Clips
    folder : Path
    advance : callable
        Called with the number of frames that have been written.

    Returns
    -------
    Written
    """
    writers = {
        ".npy": (folder / "digits.npy", _npy_writer),
        "HDF5": (folder / "digits.h5", _hdf5_writer),
        "Zarr v3": (folder / "digits.zarr", _zarr_writer),
    }
    sums = []
    with ExitStack() as stack:
        writes = [
            stack.enter_context(open_writer(path, clips)) for path, open_writer in writers.values()
        ]
        start = 0
        for slab in clips.slabs():
            for write in writes:
                write(slab, start)
            sums.append(checksums(slab))
            start += len(slab)
            advance(len(slab))
    paths = {name: path for name, (path, _) in writers.items()}
    return Written(paths, np.concatenate(sums))


@contextmanager
def _npy_writer(path: Path, clips: Clips) -> Iterator[_Writer]:
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": clips.shape}
        np.lib.format.write_array_header_1_0(file, header)

        def write(rows: NDArray[np.float32], start: int) -> None:
            file.write(rows.astype("<f4", copy=False).data)

        yield write


@contextmanager
def _hdf5_writer(path: Path, clips: Clips) -> Iterator[_Writer]:
    import h5py

    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "frames",
            clips.shape,
            "f4",
            chunks=(clips.frames, *clips.shape[1:]),
            compression="gzip",
            compression_opts=4,
            shuffle=True,
        )

        def write(rows: NDArray[np.float32], start: int) -> None:
            dataset[start : start + len(rows)] = rows

        yield write


@contextmanager
def _zarr_writer(path: Path, clips: Clips) -> Iterator[_Writer]:
    import zarr

    array = zarr.create_array(
        path,
        shape=clips.shape,
        chunks=(clips.frames, *clips.shape[1:]),
        dtype="f4",
        compressors=zarr.codecs.ZstdCodec(level=3),
    )

    def write(rows: NDArray[np.float32], start: int) -> None:
        array[start : start + len(rows)] = rows

    yield write


def check_disk(folder: Path, clips: Clips) -> None:
    """Check that three copies fit, even if nothing compresses.

    Raises
    ------
    oocdata.errors.OocdataError
        With what is needed and what is free.
    """
    from oocdata.explain import size

    needed = 3 * clips.nbytes
    free = shutil.disk_usage(folder).free
    if free < needed + (64 << 20):
        raise OocdataError(
            f"the disk must have {size(needed)} free for the demonstration's files; '{folder}' has "
            f"{size(free)}. Choose another folder with --keep DIR or the variable TMPDIR, or take "
            "--quick."
        )
