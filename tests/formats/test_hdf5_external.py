"""Test external links, external raw files and virtual datasets of HDF5."""

from __future__ import annotations

import os
import pickle
import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from oocdata.datasets.view import View
from oocdata.engines.source import Source
from oocdata.engines.strided import Strided
from oocdata.errors import (
    DamagedChunkError,
    ExternalDataError,
    MissingChunkError,
    MissingFileError,
    MissingKeyError,
    SourceError,
    UnknownFormatError,
)
from oocdata.formats.hdf5 import library
from oocdata.formats.hdf5.opening import from_dataset
from oocdata.formats.npy import open_raw
from oocdata.formats.opening import list_datasets, open_source
from oocdata.testing import SourceConformance, sample_array

ARRAY = sample_array((12, 5), "f8") + 1


def read(source: Source, rows: Any = None) -> np.ndarray:
    view = View.of(source)
    return view.take(range(len(view)) if rows is None else rows)


class TestVirtualInFile(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        with h5py.File(folder / "a.h5", "w") as file:
            layout = h5py.VirtualLayout(array.shape, array.dtype)
            for number, start in enumerate(range(0, len(array), 8)):
                part = array[start : start + 8]
                chunks = tuple(min(length, 3) for length in part.shape)
                source = file.create_dataset(f"parts/{number}", data=part, chunks=chunks)
                layout[start : start + 8] = h5py.VirtualSource(source)
            file.create_virtual_dataset("u", layout)
        return open_source(str(folder / "a.h5"), "u")


# External links


@pytest.fixture
def linked(tmp_path: Path) -> str:
    with h5py.File(tmp_path / "target.h5", "w") as file:
        file["deep/u"] = ARRAY
        file["deep/chunked"] = file.create_dataset("c", data=ARRAY, chunks=(5, 5))
        file["onwards"] = h5py.ExternalLink("third.h5", "/w")
        file["gone"] = h5py.ExternalLink("gone.h5", "/w")
    with h5py.File(tmp_path / "third.h5", "w") as file:
        file["w"] = ARRAY * 2
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = h5py.ExternalLink("target.h5", "/deep/u")
        file["folder/out"] = h5py.ExternalLink("target.h5", "/deep")
        file["soft"] = h5py.SoftLink("/folder/out/chunked")
        file["cycle"] = h5py.ExternalLink("a.h5", "/cycle")
        file["twice"] = h5py.ExternalLink("target.h5", "/onwards")
        file["gone"] = h5py.ExternalLink("gone.h5", "/w")
        file["gone later"] = h5py.ExternalLink("target.h5", "/gone")
        file["no name"] = h5py.ExternalLink("target.h5", "/nothing")
    return str(tmp_path / "a.h5")


LINKS = [("u", 1), ("folder/out/u", 1), ("folder/out/chunked", 1), ("soft", 1), ("twice", 2)]


@pytest.mark.parametrize(("key", "factor"), LINKS, ids=[key for key, _ in LINKS])
def test_external_link(linked: str, key: str, factor: int) -> None:
    with pytest.raises(
        ExternalDataError, match=r"linked from 'target\.h5'.*external=True"
    ) as caught:
        open_source(linked, key)
    assert (caught.value.path, caught.value.key) == (linked, f"/{key}")
    source = open_source(linked, key, external=True)
    assert_array_equal(read(source), ARRAY * factor)
    assert_array_equal(read(pickle.loads(pickle.dumps(source)), [3]), ARRAY[[3]] * factor)
    where = source.storage().path
    assert where is not None
    assert os.path.basename(where) == ("third.h5" if key == "twice" else "target.h5")


def test_external_links_are_listed_and_not_followed(linked: str) -> None:
    names = ["/cycle", "/folder/out", "/gone", "/gone later", "/no name", "/soft", "/twice", "/u"]
    assert list_datasets(linked) == names
    for name in ("target.h5", "third.h5"):
        os.remove(os.path.join(os.path.dirname(linked), name))
    assert list_datasets(linked) == names


@pytest.mark.parametrize("key", ["gone", "gone later"])
def test_external_link_to_no_file(linked: str, key: str) -> None:
    with pytest.raises(MissingFileError, match=r"external link.*gone\.h5' is not") as caught:
        open_source(linked, key, external=True)
    holder = "a.h5" if key == "gone" else "target.h5"
    assert os.path.basename(caught.value.path or "") == holder


def test_external_link_to_no_dataset(linked: str) -> None:
    with pytest.raises(MissingKeyError, match=r"got '/nothing'.*holds: .*target\.h5"):
        open_source(linked, "no name", external=True)
    with pytest.raises(MissingKeyError, match="is a group, which holds: '/deep/chunked'"):
        open_source(linked, "folder/out", external=True)


def test_external_link_to_itself(linked: str) -> None:
    with pytest.raises(MissingKeyError, match="links"):
        open_source(linked, "cycle", external=True)


def test_name_that_another_dataset_has_in_the_linked_file(linked: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "target.h5", "a") as file:
        file["soft"] = -ARRAY  # HDF5 calls the dataset behind the link "/soft" too
    assert_array_equal(read(open_source(linked, "soft", external=True)), ARRAY)
    with h5py.File(linked) as file:
        assert_array_equal(read(from_dataset(file["soft"])), ARRAY)


def test_only_candidate_is_an_external_link(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["w"] = ARRAY
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = h5py.ExternalLink("t.h5", "/w")
    with pytest.raises(ExternalDataError, match=r"'t\.h5'"):
        open_source(str(tmp_path / "a.h5"))
    assert_array_equal(read(open_source(str(tmp_path / "a.h5"), external=True)), ARRAY)


# External raw files


@pytest.mark.parametrize("accepted", [False, True])
def test_raw_files_are_opened_themselves(tmp_path: Path, accepted: bool) -> None:
    raw = str(tmp_path / "one.bin")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=ARRAY, external=[(raw, 8, ARRAY.nbytes)])
    with pytest.raises(ExternalDataError, match=r"one\.bin', at byte 8\. Open that file as raw"):
        open_source(str(tmp_path / "a.h5"), external=accepted)
    assert_array_equal(read(open_raw(raw, dtype="f8", shape=ARRAY.shape, offset=8)), ARRAY)


# Virtual datasets


def make_parts(folder: Path, **options: Any) -> None:
    for number in range(3):
        with h5py.File(folder / f"part{number}.h5", "w") as file:
            file.create_dataset("u", data=ARRAY[4 * number : 4 * number + 4], **options)


def make_virtual(path: str, covered: int = 3) -> str:
    layout = h5py.VirtualLayout((12, 5), "f8")
    for number in range(covered):
        source = h5py.VirtualSource(f"part{number}.h5", "u", (4, 5))
        layout[4 * number : 4 * number + 4] = source
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("u", layout, fillvalue=-9)
    return path


@pytest.fixture
def virtual(tmp_path: Path) -> str:
    make_parts(tmp_path)
    return make_virtual(str(tmp_path / "a.h5"))


def test_virtual_of_other_files(virtual: str) -> None:
    with pytest.raises(ExternalDataError, match=r"'part0\.h5' and 2 more.*external=True"):
        open_source(virtual)
    source = open_source(virtual, external=True)
    assert_array_equal(read(source), ARRAY)
    assert_array_equal(read(source, [11, 0, 5]), ARRAY[[11, 0, 5]])
    assert_array_equal(read(pickle.loads(pickle.dumps(source)), [7]), ARRAY[[7]])
    storage = source.storage()
    assert (storage.layout, storage.stored_bytes) == ("virtual, mappings: 3", None)


def test_virtual_with_a_source_file_missing(virtual: str) -> None:
    part = os.path.join(os.path.dirname(virtual), "part1.h5")
    os.remove(part)
    with pytest.raises(MissingFileError, match=r"'part1\.h5'.*rows 4, 5, 6, 7") as caught:
        open_source(virtual, external=True)
    assert caught.value.rows == (4, 5, 6, 7)
    expected = ARRAY.copy()
    expected[4:8] = -9
    assert_array_equal(read(open_source(virtual, external=True, missing="fill")), expected)


@pytest.mark.parametrize("first", [[], [0], [4]], ids=["unread", "read elsewhere", "read"])
def test_virtual_with_a_source_file_lost_while_open(virtual: str, first: list[int]) -> None:
    source = open_source(virtual, external=True)
    if first:
        read(source, first)
    os.remove(os.path.join(os.path.dirname(virtual), "part1.h5"))
    with pytest.raises(MissingFileError) as caught:
        read(source, [5])
    assert "part1.h5" in str(caught.value)
    assert 5 in (caught.value.rows or ())


def replace_part(virtual: str, **what: Any) -> None:
    path = os.path.join(os.path.dirname(virtual), "part1.h5")
    os.remove(path)
    with h5py.File(path, "w") as file:
        file.create_dataset(**what)


@pytest.mark.parametrize("missing", ["error", "fill"])
def test_virtual_with_a_source_file_replaced_before_the_first_read(
    virtual: str, missing: Any
) -> None:
    source = open_source(virtual, external=True, missing=missing)
    replace_part(virtual, name="u", data=-ARRAY[4:8])
    os.utime(os.path.join(os.path.dirname(virtual), "part1.h5"), ns=(0, 0))
    with pytest.raises(SourceError, match=r"have changed\. Open it again"):
        read(source, [5])
    assert_array_equal(read(open_source(virtual, external=True), [5]), -ARRAY[[5]])


def test_virtual_with_a_source_dataset_missing(virtual: str) -> None:
    replace_part(virtual, name="other", data=ARRAY[4:8])
    with pytest.raises(MissingChunkError, match=r"'u' in .*part1\.h5.*rows 4, 5, 6, 7") as caught:
        open_source(virtual, external=True)
    assert caught.value.rows == (4, 5, 6, 7)
    assert read(open_source(virtual, external=True, missing="fill"), [4])[0, 0] == -9


@pytest.mark.parametrize("missing", [None, "fill"])
@pytest.mark.parametrize("small", [(2, 5), (4, 4)], ids=str)
def test_virtual_with_a_small_source(virtual: str, small: Any, missing: Any) -> None:
    """HDF5 does not fill: of the second it reads elements of other rows, or crashes."""
    replace_part(virtual, name="u", data=ARRAY[4:8][tuple(map(slice, small))])
    message = rf"part1\.h5' must hold all.*has the shape {re.escape(str(small))}.*rows 4, 5, 6, 7"
    with pytest.raises(MissingChunkError, match=message):
        open_source(virtual, external=True, missing=missing)


def test_virtual_with_a_hole_in_a_source(virtual: str) -> None:
    replace_part(virtual, name="u", shape=(4, 5), dtype="f8", chunks=(2, 5))
    with pytest.raises(MissingChunkError, match=r"2 of 2 chunks.*part1\.h5"):
        open_source(virtual, external=True)


def test_virtual_with_a_damaged_source(virtual: str) -> None:
    replace_part(virtual, name="u", data=ARRAY[4:8], chunks=(2, 5), fletcher32=True)
    part = os.path.join(os.path.dirname(virtual), "part1.h5")
    with h5py.File(part) as file:
        place = file["u"].id.get_chunk_info(0).byte_offset
    with open(part, "r+b") as file:
        file.seek(place)
        file.write(b"\xff")
    source = open_source(virtual, external=True)
    rows = [0, 3, 6, 7, 11]
    assert_array_equal(read(source, rows), ARRAY[rows])
    with pytest.raises(DamagedChunkError, match=r"HDF5 says: .*filter.*row 5"):
        read(source, [5])


def test_virtual_not_covered(tmp_path: Path) -> None:
    make_parts(tmp_path)
    path = make_virtual(str(tmp_path / "a.h5"), covered=2)
    with pytest.raises(
        MissingChunkError, match=r"no source is mapped.*rows 8, 9, 10, 11"
    ) as caught:
        open_source(path, external=True)
    assert caught.value.rows == (8, 9, 10, 11)
    assert read(open_source(path, external=True, missing="fill"), [8])[0, 0] == -9


def test_virtual_without_axes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["w"] = 3.0
        layout = h5py.VirtualLayout((), "f8")
        layout[()] = h5py.VirtualSource(file["w"])
        file.create_virtual_dataset("u", layout)
    with pytest.raises(UnknownFormatError, match=r"this is a single number\. Open its source"):
        open_source(str(tmp_path / "a.h5"), "u", axis=None)


@pytest.mark.parametrize("missing", [None, "fill"])
def test_virtual_of_mappings_that_overlap(tmp_path: Path, missing: Any) -> None:
    """HDF5 would read either of two overlapping sources; their sizes sum up to the array's."""
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["w"] = ARRAY
        layout = h5py.VirtualLayout((12, 5), "f8")
        layout[:8] = h5py.VirtualSource(file["w"])[:8]
        layout[4:8] = h5py.VirtualSource(file["w"])[4:8]  # twice, so the sum is 12 rows
        file.create_virtual_dataset("u", layout, fillvalue=-9)
    with pytest.raises(UnknownFormatError, match=r"must not overlap"):
        open_source(path, "u", missing=missing)


@pytest.mark.parametrize("step", [2, 3])
def test_virtual_interleaved(tmp_path: Path, step: int) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((12, 5), "f8")
        for first in range(step):
            file[f"part{first}"] = ARRAY[first::step]
            layout[first::step] = h5py.VirtualSource(file[f"part{first}"])
        file.create_virtual_dataset("u", layout)
        short = h5py.VirtualLayout((12, 5), "f8")
        for first in range(step - 1):
            short[first::step] = h5py.VirtualSource(file[f"part{first}"])
        file.create_virtual_dataset("short", short)
    assert_array_equal(read(open_source(path, "u")), ARRAY)
    with pytest.raises(MissingChunkError) as caught:
        open_source(path, "short")
    assert caught.value.rows == tuple(range(step - 1, 12, step))


@pytest.mark.parametrize("seed", range(20))
def test_virtual_of_any_mappings(tmp_path: Path, seed: int) -> None:
    """Exactly the rows that no mapping covers completely are named."""
    rng, path = np.random.default_rng(seed), str(tmp_path / "a.h5")
    shape = tuple(rng.integers(1, 9, rng.integers(1, 4)).tolist())
    axis, covered = int(rng.integers(len(shape))), np.zeros(shape, bool)
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout(shape, "f8")
        for number in range(rng.integers(1, 6)):
            starts = [int(rng.integers(length)) for length in shape]
            place = tuple(
                slice(start, None, int(rng.integers(1, 3))) if rng.random() < 0.5 else slice(None)
                for start in starts
            )
            if covered[place].any():  # refused
                continue
            file[f"s{number}"] = rng.random(covered[place].shape)
            layout[place] = h5py.VirtualSource(file[f"s{number}"])
            covered[place] = True
        file.create_virtual_dataset("u", layout, fillvalue=-9)
        expected = file["u"][...]
    others = tuple(place for place in range(len(shape)) if place != axis)
    holes = np.flatnonzero(~covered.all(axis=others)).tolist()
    if holes:
        with pytest.raises(MissingChunkError) as caught:
            open_source(path, "u", axis=axis)
        assert caught.value.rows == tuple(holes)
    source = open_source(path, "u", missing="fill" if holes else None)
    assert_array_equal(read(source), expected)


def test_virtual_of_an_irregular_mapping(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["w"] = ARRAY[:5]
        place, inner = h5py.h5s.create_simple((12, 5)), h5py.h5s.create_simple((5, 5))
        place.select_hyperslab((0, 0), (4, 5))
        place.select_hyperslab((6, 0), (1, 5), op=h5py.h5s.SELECT_OR)
        assert not place.is_regular_hyperslab()
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_virtual(place, b".", b"w", inner)
        space = h5py.h5s.create_simple((12, 5))
        h5py.h5d.create(file.id, b"u", h5py.h5t.IEEE_F64LE, space, plist)
    with pytest.raises(MissingChunkError, match=r"rows 4, 5, 7, 8, 9, 10, 11"):
        open_source(path, "u")
    found = read(open_source(path, "u", missing="fill"))
    assert_array_equal(found[[0, 1, 2, 3, 6]], ARRAY[:5])


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("codec", ["gzip", "szip", None])
def test_virtual_chunks_are_decoded_once(
    tmp_path: Path, codec: str | None, stacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of compressed sources, in shuffled order; others are read row by row."""
    shape, chunk = (8, 40, 3) if stacked else (80, 4, 3), (10, 3) if stacked else (8, 4, 3)
    array, path = sample_array(shape, "f8"), str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout(shape, ">f8")
        for start in range(0, len(array), 1 if stacked else 40):
            place = start if stacked else slice(start, start + 40)
            options = {"chunks": chunk, "compression": codec}
            file.create_dataset(f"s{start}", data=array[place], **options)
            layout[place] = h5py.VirtualSource(file[f"s{start}"])
        file.create_virtual_dataset("u", layout)
    read_boxes, counted = library._read, []

    def count(dataset: Any, box: Any, *rest: Any) -> Any:
        counted.append(box)
        return read_boxes(dataset, box, *rest)

    view = View.of(open_source(path, "u"))
    monkeypatch.setattr(library, "_read", count)
    rows = view.batches(4, shuffle=True, seed=3).epoch(0)
    assert_array_equal(np.sort(np.concatenate(list(rows)), axis=0), np.sort(array, axis=0))
    assert (len(counted) == (32 if stacked else 10)) == (codec is not None)


def test_virtual_sources_with_percent_signs_in_their_names(tmp_path: Path) -> None:
    """Doubled in a mapping, where ``%b`` stands for a number."""
    with h5py.File(tmp_path / "50%b.h5", "w") as file:
        file["a%b"] = ARRAY[:6]
        layout = h5py.VirtualLayout((12, 5), "f8")
        layout[:6] = h5py.VirtualSource("50%%b.h5", "a%%b", (6, 5), "f8")
        layout[6:] = h5py.VirtualSource("other%%.h5", "100%%", (6, 5), "f8")
        file.create_virtual_dataset("u", layout)
        own = h5py.VirtualLayout((6, 5), "f8")
        own[:] = h5py.VirtualSource("50%%b.h5", "a%%b", (6, 5), "f8")
        file.create_virtual_dataset("own", own)
    with h5py.File(tmp_path / "other%.h5", "w") as file:
        file["100%"] = ARRAY[6:]
    path = str(tmp_path / "50%b.h5")
    with h5py.File(path) as file:
        assert_array_equal(file["u"], ARRAY)
    assert_array_equal(read(open_source(path, "u", external=True)), ARRAY)
    assert_array_equal(read(open_source(path, "own")), ARRAY[:6])


def test_virtual_of_another_rank(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((12, 5), "f8")
        for row in range(12):
            file[f"rows/{row}"] = ARRAY[row]
            layout[row] = h5py.VirtualSource(file[f"rows/{row}"])
        file.create_virtual_dataset("u", layout)
    assert_array_equal(read(open_source(path, "u")), ARRAY)


def test_virtual_without_end(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    unlimited = h5py.h5s.UNLIMITED
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("w", data=ARRAY, maxshape=(None, 5), chunks=(4, 5))
        layout = h5py.VirtualLayout((12, 5), "f8", maxshape=(None, 5))
        layout[0:unlimited, :] = h5py.VirtualSource(file["w"])[0:unlimited, :]
        file.create_virtual_dataset("u", layout)
    for missing in (None, "fill"):
        with pytest.raises(UnknownFormatError, match="mapping without end"):
            open_source(path, "u", missing=missing)


def test_virtual_through_an_external_link(tmp_path: Path) -> None:
    make_parts(tmp_path)
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["w"] = h5py.ExternalLink("part0.h5", "/u")
        layout = h5py.VirtualLayout((4, 5), "f8")
        layout[:] = h5py.VirtualSource(".", "w", (4, 5))
        file.create_virtual_dataset("u", layout)
    with pytest.raises(ExternalDataError, match=r"part0\.h5"):
        open_source(path, "u")
    source = open_source(path, "u", external=True)
    assert_array_equal(read(source), ARRAY[:4])
    os.remove(tmp_path / "part0.h5")
    with pytest.raises(SourceError):
        read(source)


def test_virtual_of_virtual_and_of_itself(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["w"] = ARRAY
        for name, source in (("once", "w"), ("u", "once"), ("self", "self")):
            layout = h5py.VirtualLayout((12, 5), "f8")
            layout[:] = h5py.VirtualSource(".", source, (12, 5))
            file.create_virtual_dataset(name, layout)
    assert_array_equal(read(open_source(path, "u")), ARRAY)
    with pytest.raises(UnknownFormatError, match="hold themselves"):
        open_source(path, "self")


def test_virtual_moved_with_its_sources(virtual: str, tmp_path: Path) -> None:
    """A source that is gone from its absolute path is searched beside the file, as by HDF5."""
    layout = h5py.VirtualLayout((4, 5), "f8")
    layout[:] = h5py.VirtualSource(str(tmp_path / "part0.h5"), "u", (4, 5))
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_virtual_dataset("u", layout, fillvalue=-9)
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.move(tmp_path / "part0.h5", moved)
    shutil.move(tmp_path / "b.h5", moved)
    assert_array_equal(read(open_source(str(moved / "b.h5"), external=True)), ARRAY[:4])


def test_virtual_source_damaged(tmp_path: Path) -> None:
    make_parts(tmp_path, chunks=(2, 5), compression="gzip")
    path = make_virtual(str(tmp_path / "a.h5"))
    infos: list[Any] = []
    with h5py.File(tmp_path / "part1.h5") as file:
        file["u"].id.chunk_iter(infos.append)
    with open(tmp_path / "part1.h5", "r+b") as file:
        file.seek(infos[1].byte_offset)
        file.write(b"\xff" * infos[1].size)
    with pytest.raises(DamagedChunkError):
        read(open_source(path, external=True), [6])
    assert_array_equal(read(open_source(path, external=True), [4]), ARRAY[[4]])


@pytest.fixture
def few_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_virtual_with_more_sources_than_descriptors(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Without descriptors to open a source, HDF5 would read the fill value."""
    layout = h5py.VirtualLayout((60, 5), "f8")
    for number in range(60):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["u"] = np.full((1, 5), number)
        layout[number] = h5py.VirtualSource(f"{number}.h5", "u", (1, 5))[0]
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("u", layout, fillvalue=-9)
    source = open_source(path, external=True)
    request.getfixturevalue("few_files")
    with pytest.raises(SourceError, match="Too many open files"):
        read(source)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_virtual_keeps_its_sources_open(virtual: str, tmp_path: Path) -> None:
    source = open_source(virtual, external=True)
    read(source, [0])
    names = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    for number in range(3):
        assert str(tmp_path / f"part{number}.h5") in names


def test_object_of_a_linked_dataset(linked: str) -> None:
    with h5py.File(linked) as file:
        source = from_dataset(file["u"])
        assert isinstance(source, Strided)
        assert_array_equal(read(source), ARRAY)
