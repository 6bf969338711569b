"""Test the references found in HDF5 metadata against the pieces that HDF5 reads next."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from oocdata.formats.hdf5.metadata import referenced_pieces
from oocdata.formats.hdf5.table import stored_chunks


class Recorded(io.FileIO):
    """A file that records the offset and the bytes of each read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads: list[tuple[int, bytes]] = []

    def readinto(self, buffer: Any) -> int:
        place = self.tell()
        nbytes = super().readinto(buffer) or 0
        self.reads.append((place, bytes(memoryview(buffer)[:nbytes])))
        return nbytes


INDICES: dict[str, dict[str, Any]] = {
    "tree": {"libver": "earliest", "count": 5000},
    "extensible array": {"libver": "latest", "count": 20_000},
}


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("index", INDICES)
def test_the_index_of_chunks(index: str, filtered: bool, tmp_path: Path) -> None:
    made = INDICES[index]
    with h5py.File(tmp_path / "a.h5", "w", libver=made["libver"]) as file:
        file.create_dataset(
            "u",
            data=np.arange(made["count"] * 2).reshape(-1, 2),
            chunks=(1, 2),
            maxshape=(None, 2),
            compression="gzip" if filtered else None,
        )
    with Recorded(tmp_path / "a.h5") as stream, h5py.File(stream, "r") as file:
        dataset = file["u"]
        del stream.reads[:-1]  # from the header of the dataset, or the root of its tree
        seen: list[Any] = []
        dataset.id.chunk_iter(seen.append)
        assert len(seen) == made["count"]
        reads = stream.reads
    referenced: dict[int, int] = {}
    for number, (place, data) in enumerate(reads):
        if number and data[:4] not in (b"OHDR", b"EAHD"):
            assert referenced.get(place, 0) >= len(data), data[:4]
        referenced.update(referenced_pieces(data))
    assert len(reads) > 2


def test_listing_many_chunks_takes_little_memory(tmp_path: Path) -> None:
    count = 40_000
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file.create_dataset("u", shape=(count, 2), chunks=(1, 2), dtype="i8", track_times=False)
        file["u"][:] = 1
    with h5py.File(tmp_path / "a.h5") as file:
        tracemalloc.start()
        chunks = stored_chunks([file["u"].id], (count, 1), (1, 2))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert chunks[0].tolist() == list(range(count))
    assert peak < 80 * count  # 132 bytes for each, when every column was copied
