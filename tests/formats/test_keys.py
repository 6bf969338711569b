"""Test many datasets of a file as one array, by patterns and lists of keys."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import as_json, check_fingerprint, describe, fingerprint, from_json
from oocdata.engines import files
from oocdata.engines.cache import cache
from oocdata.engines.concat import Concat
from oocdata.errors import (
    ArgumentError,
    ChecksumError,
    DamagedChunkError,
    ExternalDataError,
    MismatchedPartsError,
    MissingChunkError,
    MissingKeyError,
    PartBorderWarning,
    RestoreError,
    SeveralDatasetsError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats.hdf5 import links, table
from oocdata.formats.hdf5 import opening as hdf5_opening
from oocdata.formats.hdf5.decode import ChunkDecoder
from oocdata.formats.opening import tree_of

LENGTHS = (5, 0, 1, 14, 7, 3, 0, 9, 1, 2, 12, 0)
STARTS = np.cumsum([0, *LENGTHS])
ROWS = int(STARTS[-1])
WHOLE = np.arange(ROWS * 6, dtype="f4").reshape(ROWS, 3, 2)
PARTS = [WHOLE[a:b] for a, b in itertools.pairwise(STARTS)]
PATTERN = "data/demo_*/obs/u"
STORED: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunks": {"chunks": (4, 3, 2), "maxshape": (None, 3, 2)},
    "gzip": {"chunks": (4, 2, 2), "maxshape": (None, 3, 2), "compression": "gzip"},
    "auto": {"maxshape": (None, 3, 2), "compression": "lzf", "shuffle": True},
    "bitshuffle": {"chunks": (4, 3, 2), "maxshape": (None, 3, 2), "scaleoffset": None},
}
KINDS = ["contiguous", "chunks", "gzip", "auto", "zarr", "npz"]
HDF5 = KINDS[:4]


def write(folder: Path, kind: str, parts: list[np.ndarray] = PARTS, name: str = "a") -> Path:
    """Write parts like those of a robomimic file, with other datasets between them."""
    if kind == "npz":
        path = folder / f"{name}.npz"
        np.savez(path, **{f"data/demo_{n}/obs/u": part for n, part in enumerate(parts)})
        return path
    if kind == "zarr":
        group = zarr.create_group(folder / f"{name}.zarr", overwrite=True)
        for n, part in enumerate(parts):
            chunks = (4, *part.shape[1:])
            group.create_array(f"data/demo_{n}/obs/u", data=part, chunks=chunks, fill_value=-1)
        return folder / f"{name}.zarr"
    path = folder / f"{name}.h5"
    with h5py.File(path, "w") as file:
        for n, part in enumerate(parts):
            file.create_dataset(f"data/demo_{n}/obs/u", data=part, **STORED[kind])
            file.create_dataset(f"data/demo_{n}/obs/v", data=np.full(n + 1, 99))
            file["data"][f"demo_{n}"].attrs["num_samples"] = len(part)
        file["mask/train"] = np.array([b"demo_3", b"demo_10", b"demo_1"])
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: write(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, written: dict[str, Path]) -> Path:
    return written[request.param]


# --- one array


def test_all_rows_in_natural_order(path: Path) -> None:
    view = ooc.open(path, PATTERN)
    assert view.shape == WHOLE.shape
    assert_array_equal(np.asarray(view), WHOLE)
    rows = np.random.default_rng(0).integers(0, ROWS, 100)
    assert_array_equal(view.take(rows), WHOLE[rows])
    assert_array_equal(view[:, 1, ::-1].take(rows), WHOLE[rows][:, 1, ::-1])
    assert_array_equal(view[7], WHOLE[7])
    assert_array_equal(
        view.transpose().astype("f8").take(rows[:5]), WHOLE[rows[:5]].transpose(0, 2, 1)
    )
    steps = [name.strip("/") for name in view.parts.names]
    assert steps == [f"data/demo_{n}/obs/u" for n in range(len(PARTS))]
    assert view.parts.lengths.tolist() == list(LENGTHS)


def test_windows_stay_within_a_dataset(path: Path) -> None:
    view = ooc.open(path, PATTERN)
    for inputs, targets in ((2, 0), (3, 1), (9, 3), (14, 0)):
        span = inputs + targets
        windows = view.windows(inputs, targets)
        assert len(windows) == sum(max(0, length - span + 1) for length in LENGTHS)
        found = windows.take(range(len(windows)))
        x = found[0] if targets else found
        starts = [s + i for s, n in zip(STARTS, LENGTHS) for i in range(n - span + 1)]  # noqa: B905
        assert_array_equal(x, [WHOLE[s : s + inputs] for s in starts])
    across = view.windows(3, episodes="none")
    assert len(across) == ROWS - 2
    assert_array_equal(across.take(range(ROWS - 2)), [WHOLE[s : s + 3] for s in range(ROWS - 2)])
    # A single file is not cut.
    assert len(view.windows(3, episodes="files")) == ROWS - 2
    given_ = view.windows(3, episodes=[ROWS - 10, 10])
    cut = {*STARTS.tolist(), ROWS - 10}
    lengths = np.diff(sorted(cut))
    assert len(given_) == sum(max(0, length - 2) for length in lengths)


def test_a_list_of_keys_keeps_its_order(path: Path) -> None:
    keys = ["data/demo_10/obs/u", "/data/demo_3/obs/u", "data/demo_1/obs/u"]
    view = ooc.open(path, keys)
    assert_array_equal(np.asarray(view), np.concatenate([PARTS[10], PARTS[3]]))
    assert view.parts.lengths.tolist() == [12, 14, 0]
    mixed = ooc.open(path, ["data/demo_4/obs/u", "data/demo_[0-9]/obs/u"])
    order = [4, *(n for n in range(10) if n != 4)]
    assert_array_equal(np.asarray(mixed), np.concatenate([PARTS[n] for n in order]))
    assert_array_equal(np.asarray(ooc.open(path, keys[:1])), PARTS[10])
    again = ooc.open(**view.storage.opened)  # type: ignore[arg-type]
    assert_array_equal(np.asarray(again), np.asarray(view))


def test_a_pattern_may_match_what_was_named_before(path: Path) -> None:
    view = ooc.open(path, ["data/demo_1/obs/u", "data/demo_1/obs/[u]", PATTERN])
    assert view.shape == WHOLE.shape
    assert view.parts.names[0].strip("/") == "data/demo_1/obs/u"


def test_files_times_keys(tmp_path: Path) -> None:
    for number in range(3):
        parts = [part + 1000 * number for part in PARTS[: 4 + number]]
        write(tmp_path, "gzip" if number == 1 else "contiguous", parts, f"f{number}")
    view = ooc.open(tmp_path / "f*.h5", PATTERN)
    every = [part + 1000 * n for n in range(3) for part in PARTS[: 4 + n]]
    assert_array_equal(np.asarray(view), np.concatenate(every))
    assert view.parts.lengths.tolist() == [len(part) for part in every]
    assert view.parts.names[4] == f"{tmp_path}/f1.h5::/data/demo_0/obs/u"
    assert len(view.windows(2)) == sum(max(0, len(part) - 1) for part in every)
    files_ = [sum(map(len, every[:4])), sum(map(len, every[4:9])), sum(map(len, every[9:]))]
    assert len(view.windows(2, episodes="files")) == sum(files_) - 3
    with pytest.raises(ArgumentError, match=r"'demo_3' names 3 of .*f0.*f1"):
        view.named(["demo_3"])
    assert_array_equal(np.asarray(view.named([view.parts.names[7]])), every[7])
    again = from_json(as_json(view.windows(2).batches(4)))
    assert_array_equal(again.batch(1), view.windows(2).batches(4).batch(1))


def test_files_are_one_series_unless_told(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"run_{number}.npy", WHOLE[number * 10 : (number + 1) * 10])
    view = ooc.open(tmp_path / "run_*.npy")
    twice = {"a": (view, 2), "b": (view, 1)}
    for crossing in (lambda: view.windows(2), view.next_frame, lambda: ooc.windows(twice)):
        with pytest.warns(PartBorderWarning, match="from one part into the next") as caught:
            assert len(crossing()) == 29
        assert [warning.filename for warning in caught] == [__file__]
    assert len(view.windows(2, episodes="none")) == 29
    with pytest.warns(PartBorderWarning):
        ooc.open([WHOLE[:10], WHOLE[10:]]).next_frame()
    assert len(view.windows(1)) == len(view.windows(1, episodes=[3, 27])) == 30
    assert len(view[10:20].windows(2)) == 9
    assert len(view.windows(2, episodes="files")) == len(view.windows(2, episodes="parts")) == 27
    assert_array_equal(np.asarray(view.named(["run_2"])), WHOLE[20:30])
    with pytest.raises(ArgumentError, match="one of the words 'parts', 'files', 'folders'"):
        view.windows(2, episodes="part")


@pytest.mark.parametrize("kind", HDF5)
@pytest.mark.parametrize("axis", [1, (1, 0), -1], ids=str)
def test_along_another_axis(tmp_path: Path, kind: str, axis: Any) -> None:
    along = axis if isinstance(axis, int) else axis[0]
    parts = [np.moveaxis(part, 0, along) for part in PARTS if len(part)]
    path = tmp_path / "a.h5"
    options = {k: v for k, v in STORED[kind].items() if k not in ("chunks", "maxshape")}
    with h5py.File(path, "w") as file:
        for n, part in enumerate(parts):
            file.create_dataset(f"r{n}", data=part, chunks=kind != "contiguous" or None, **options)
    view = ooc.open(path, "r*", axis=axis)
    whole = np.concatenate(parts, along)
    expected = np.moveaxis(whole, axis, range(np.size(axis))).reshape(view.shape)
    assert_array_equal(np.asarray(view), expected)
    assert len(view.windows(3, episodes="none" if np.size(axis) == 1 else None)) > 0


@settings(max_examples=20)
@given(st.data())
def test_any_parts(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    kinds = data.draw(st.lists(st.sampled_from(HDF5), min_size=1, max_size=6))
    whole = np.arange(sum(lengths) * 6, dtype=data.draw(st.sampled_from(["<f4", ">i2"])))
    whole = whole.reshape(-1, 3, 2)
    folder = tmp_path_factory.mktemp("any")
    with h5py.File(folder / "a.h5", "w") as file:
        for n, (stop, kind) in enumerate(zip(np.cumsum(lengths), itertools.cycle(kinds))):
            file.create_dataset(f"{n}", data=whole[stop - lengths[n] : stop], **STORED[kind])
    view = ooc.open(folder / "a.h5", "*")
    assert_array_equal(np.asarray(view), whole)
    if len(whole):
        rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1)))
        assert_array_equal(view.take(rows), whole[rows])
        length = data.draw(st.integers(1, len(whole)))
        windows = view.windows(length, episodes="none")
        assert_array_equal(windows[len(windows) // 2], whole[len(windows) // 2 :][:length])


# --- parts by name


def test_rows_of_named_parts(path: Path) -> None:
    view = ooc.open(path, PATTERN)
    some = view.named(["demo_10", b"demo_3", "demo_1"])
    assert_array_equal(np.asarray(some), np.concatenate([PARTS[3], PARTS[10]]))
    assert len(some.windows(2)) == 13 + 11
    assert len(view.named(["demo_1"])) == 0
    assert_array_equal(np.asarray(view.named("data/demo_4/obs/u")), PARTS[4])
    assert view.named(["demo_3"]).rows == range(6, 20)
    assert_array_equal(np.asarray(view[::-1].named(["demo_3"])), PARTS[3][::-1])
    assert view[[3, 40, 6]].parts.numbers.tolist() == [0, 9, 3]


def test_names_kept_in_the_file(tmp_path: Path) -> None:
    path, file_of_names = write(tmp_path, "gzip"), tmp_path / "n.npz"
    with h5py.File(path, "a") as file:
        file["mask/vlen"] = ["demo_3", "demo_10"]
    np.savez(file_of_names, train=np.array(["demo_3", "demo_10"]))
    for target, key in ((path, "mask/train"), (path, "mask/vlen"), (file_of_names, "train")):
        train = ooc.open(path, PATTERN).named(np.asarray(ooc.open(target, key)))
        assert_array_equal(np.asarray(train), np.concatenate([PARTS[3], PARTS[10]]))


def test_names_that_are_none(path: Path) -> None:
    view = ooc.open(path, PATTERN)
    with pytest.raises(ArgumentError, match=r"'demo_33' names 0 of the 12: .*data/demo_0/obs/u,"):
        view.named(["demo_3", "demo_33"])
    with pytest.raises(ArgumentError, match="'obs' names 12"):
        view.named("obs")
    one = ooc.open(path, "data/demo_3/obs/u")
    assert len(one.parts) == 1
    assert len(one.named(["demo_3"])) == 14


# --- which names match


def test_a_pattern_that_matches_nothing(path: Path) -> None:
    with pytest.raises(MissingKeyError, match=r"demo_\*/obs/w' matches 0 groups.*demo_\*/obs/u'"):
        ooc.open(path, "data/demo_*/obs/w")
    with pytest.raises(MissingKeyError, match=r"matches 0 groups.*data/demo_"):
        ooc.open(path, "data/dem_*/obs/u")
    with pytest.raises(MissingKeyError, match=r"matches 12 groups.*'data/demo_\*/obs/u'"):
        ooc.open(path, "data/demo_*/obs")
    with pytest.raises(MissingKeyError, match="demo_77"):
        ooc.open(path, ["data/demo_3/obs/u", "data/demo_77/obs/u"])


def test_keys_that_are_no_keys(path: Path) -> None:
    for key in (5, [], [3], ["a", None]):
        with pytest.raises(ArgumentError, match="`key` must be a dataset's name or pattern"):
            ooc.open(path, key)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="each dataset once; got 'a' 2 times"):
        ooc.open(path, ["a", "/a"])
    with pytest.raises(ArgumentError, match="one name for an object"):
        ooc.open(WHOLE, ["a"])


@pytest.mark.parametrize("kind", ["hdf5", "npz", "zarr"])
def test_names_that_look_like_patterns(tmp_path: Path, kind: str) -> None:
    arrays = {"a*": PARTS[0], "ab": PARTS[3], "a[1]": PARTS[4], "a1": PARTS[5]}
    path = tmp_path / "a"
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    elif kind == "npz":
        np.savez(path, **arrays)
        path = tmp_path / "a.npz"
    else:
        group = zarr.create_group(path)
        for name, array in arrays.items():
            group.create_array(name, data=array, fill_value=-1)
    for name, array in arrays.items():
        view = ooc.open(path, name)
        assert_array_equal(np.asarray(view), array)
        assert len(view.parts) == 1
    assert_array_equal(np.asarray(ooc.open(path, "a[*]")), arrays["a*"])
    assert len(ooc.open(path, "a?*").parts) == 4
    assert_array_equal(
        np.asarray(ooc.open(path, ["a[1]", "a*"])), np.concatenate([PARTS[4], PARTS[0]])
    )


def test_links_count_once_and_lead_nowhere_else(tmp_path: Path) -> None:
    path = write(tmp_path, "contiguous")
    with h5py.File(path, "a") as file:
        file["data/demo_20/obs/u"] = h5py.SoftLink("/data/demo_3/obs/u")
        file["data/demo_21/obs/u"] = file["data/demo_4/obs/u"]
        file["data/demo_22"] = h5py.SoftLink("/data/demo_0")
        file["data/demo_23"] = h5py.SoftLink("/nowhere")
        file["other"] = h5py.SoftLink("/data")
    assert_array_equal(np.asarray(ooc.open(path, PATTERN)), WHOLE)
    assert_array_equal(np.asarray(ooc.open(path, "other/demo_*/obs/u")), WHOLE)
    alone = ooc.open(path, ["data/demo_20/obs/u", "data/demo_3/obs/u"])
    assert len(alone) == 28  # as asked for
    other = write(tmp_path, "gzip", PARTS[:1], "b")
    with h5py.File(path, "a") as file:
        file["data/demo_30/obs/u"] = h5py.ExternalLink(other.name, "/data/demo_0/obs/u")
    with pytest.raises(ExternalDataError, match=r"linked from 'b\.h5'.*demo_30"):
        ooc.open(path, PATTERN)
    view = ooc.open(path, PATTERN, external=True)
    assert_array_equal(np.asarray(view), np.concatenate([WHOLE, PARTS[0]]))
    with h5py.File(path, "a") as file:
        file["away"] = h5py.ExternalLink(other.name, "/")
        file["data/w[1]"] = h5py.ExternalLink(other.name, "/data/demo_0/obs/u")
    with pytest.raises(
        MissingKeyError, match=r"got '/data/\*/obs/u'.* holds: '/data/demo_0/obs/u'"
    ):
        ooc.open(path, "away/data/*/obs/u", external=True)
    assert_array_equal(np.asarray(ooc.open(path, "data/w[1]", external=True)), PARTS[0])


@pytest.mark.parametrize("pattern", [PATTERN, "data/*/*/u", "data/*/obs/*"])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_pattern_does_not_leave_out_damaged_groups(
    tmp_path: Path, libver: str, pattern: str
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for number, part in enumerate(PARTS[:3]):
            file[f"data/demo_{number}/obs/u"] = part
        header = h5py.h5o.get_info(file["data/demo_1"].id).addr
    with open(path, "r+b") as file:
        file.seek(header)
        file.write(b"\xff")  # a version of object headers that does not exist
    with pytest.raises(UnknownFormatError, match="must be readable"):
        ooc.open(path, pattern)
    assert_array_equal(np.asarray(ooc.open(path, "data/demo_[02]/obs/u")), WHOLE[:6])


def test_linked_files_are_open_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for n in range(9):
            write(tmp_path, "contiguous", [PARTS[3]], f"b{n}")
            file[f"run_{n}"] = h5py.ExternalLink(f"b{n}.h5", "/data/demo_0/obs/u")
    usual, opened = links.open_file, list[Any]()

    def open_file(path: str) -> Any:
        opened.append(usual(path))
        assert sum(map(bool, opened)) <= 2  # the file itself and one more; a closed file is false
        return opened[-1]

    monkeypatch.setattr(links, "open_file", open_file)
    view = ooc.open(tmp_path / "a.h5", "run_*", external=True)
    assert_array_equal(np.asarray(view), np.concatenate([PARTS[3]] * 9))
    assert view.storage.annotations().attributes == {}
    assert len(opened) == 20


# --- parts that don't fit, or are not whole


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_that_differ_are_listed(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind, [*PARTS[:5], np.zeros((4, 2, 1), "f4"), PARTS[7][:2]])
    with pytest.raises(
        MismatchedPartsError,
        match=r"\(\*, 3, 2\) float32 \(6 parts\) and \(\*, 2, 1\) float32 \(1 part, the first "
        r"'/?data/demo_5/obs/u'\)",
    ):
        ooc.open(path, PATTERN)


def test_dtypes_that_differ_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path, "contiguous", [*PARTS[3:5], PARTS[5].astype("f8"), PARTS[7]])
    with pytest.raises(MismatchedPartsError, match=r"float32 \(3 parts\) and .* float64 \(1 part"):
        ooc.open(path, PATTERN)
    with h5py.File(path, "a") as file:
        file["data/demo_9/obs/u"] = "text"
    with pytest.raises(ArgumentError, match="demo_9"):
        ooc.open(path, PATTERN)


def test_byte_orders_and_packing_may_be_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path, "contiguous", [PARTS[3], PARTS[4].astype(">f4"), PARTS[5]])
    assert_array_equal(np.asarray(ooc.open(path, PATTERN)), np.concatenate(PARTS[3:6]))
    with h5py.File(path, "a") as file:
        file["data/demo_2/obs/u"].attrs["scale_factor"] = 0.5
    with pytest.raises(MismatchedPartsError, match=r"packed alike.*demo_2"):
        ooc.open(path, PATTERN)


@pytest.mark.parametrize("kind", ["contiguous", "chunks", "gzip"])
def test_parts_that_were_never_written(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind)
    with h5py.File(path, "a") as file:
        options = {**STORED[kind], "fillvalue": 7}
        file.create_dataset("data/demo_12/obs/u", (9, 3, 2), "f4", **options)
        if kind != "contiguous":
            file["data/demo_12/obs/u"][:4] = 1
    with pytest.raises(MissingChunkError, match="demo_12") as caught:
        ooc.open(path, PATTERN)
    assert caught.value.key == "/data/demo_12/obs/u"
    view = ooc.open(path, PATTERN, missing="fill")
    assert_array_equal(np.asarray(view)[:ROWS], WHOLE)
    assert_array_equal(np.asarray(view)[-5:], np.full((5, 3, 2), 7))


def test_virtual_and_compact_parts_are_opened_like_any_other(tmp_path: Path) -> None:
    path = write(tmp_path, "gzip")
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout((14, 3, 2), "f4")
        layout[:] = h5py.VirtualSource(".", "/data/demo_3/obs/u", (14, 3, 2))
        file.create_virtual_dataset("data/demo_12/obs/u", layout)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space, group = h5py.h5s.create_simple((5, 3, 2)), file.create_group("data/demo_13/obs")
        made = h5py.h5d.create(group.id, b"u", h5py.h5t.IEEE_F32LE, space, compact)
        h5py.Dataset(made)[...] = PARTS[0]
    view = ooc.open(path, PATTERN)
    assert_array_equal(np.asarray(view), np.concatenate([WHOLE, PARTS[3], PARTS[0]]))
    del view
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout((14, 3, 2), "f4")
        layout[:] = h5py.VirtualSource("elsewhere.h5", "u", (14, 3, 2))
        file.create_virtual_dataset("data/demo_14/obs/u", layout)
    with pytest.raises(ExternalDataError, match="demo_14"):
        ooc.open(path, PATTERN)


@pytest.mark.parametrize("chunks", [None, (1,)], ids=str)
def test_numbers_in_one_run_and_in_chunks_of_one(tmp_path: Path, chunks: Any) -> None:
    """The first part may be contiguous and the others in chunks, or the reverse."""
    array = np.arange(24.0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, way in enumerate((chunks, None, (1,), (4,), (1,), None)):
            part = array[4 * number : 4 * number + 4]
            file.create_dataset(f"run_{number}", data=part, chunks=way)
            file.create_dataset(f"other/{number}", data=-part)  # stored between two parts
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.h5", "run_*")), array)


def test_a_type_that_numpy_lacks_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u0", data=np.zeros((4, 3), "f4"), chunks=(2, 3))
        plist, space = h5py.h5p.create(h5py.h5p.DATASET_CREATE), h5py.h5s.create_simple((4, 3))
        plist.set_chunk((2, 3))
        times = h5py.h5t.vlen_create(h5py.h5t.UNIX_D32LE)
        h5py.h5d.create(file.id, b"u1", times, space, plist)
    with pytest.raises(UnsupportedDtypeError, match=r"no dtype for these.*u1"):
        ooc.open(tmp_path / "a.h5", "u*", missing="fill")


@pytest.mark.parametrize("kind", ["h5py", "zarr"])
def test_datasets_of_a_file_that_are_given_themselves(tmp_path: Path, kind: str) -> None:
    """A list of datasets equals a list of their keys: same rows, episodes and description."""
    lengths = [5, 0, 9] if kind == "h5py" else [5, 3, 9]  # zarr wants a chunk in each
    numbers = [np.arange(n * 3).reshape(n, 3) + 100 * n for n in lengths]
    path = tmp_path / f"a.{kind}"
    file: Any = h5py.File(path, "w") if kind == "h5py" else zarr.open_group(path, mode="w")
    for name, part in enumerate(numbers):
        if kind == "h5py":
            file.create_dataset(f"u{name}", data=part, chunks=(2, 3), maxshape=(None, 3))
        else:
            file.create_array(f"u{name}", data=part, chunks=(2, 3))
    if kind == "h5py":
        file.close()
        file = h5py.File(path)
    view = ooc.open([file["u0"], file["u1"], file["u2"]])
    keys = ooc.open(path, ["u0", "u1", "u2"])
    assert_array_equal(np.asarray(view), np.concatenate(numbers))
    assert view.parts.lengths.tolist() == keys.parts.lengths.tolist() == lengths
    assert len(view.windows(3)) == len(keys.windows(3)) == sum(max(0, n - 2) for n in lengths)
    if kind == "h5py":
        file.close()
        loader = view.windows(3).batches(4, shuffle=True, seed=1)
        assert_array_equal(from_json(as_json(loader)).batch(1), loader.batch(1))


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    path = write(tmp_path, "contiguous")
    with h5py.File(path) as file:
        end = file["data/demo_10/obs/u"].id.get_offset()
    # HDF5 refuses a file that is shorter than its superblock says, so the superblock is changed.
    data = bytearray(path.read_bytes()[: end + 24])
    at = data.index(len(path.read_bytes()).to_bytes(8, "little"))
    data[at : at + 8] = len(data).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises((TruncatedFileError, SourceError), match="cut short"):
        ooc.open(path, PATTERN)


@pytest.mark.parametrize("kind", HDF5)
def test_a_file_cut_short_later_names_dataset_and_rows(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind)
    view = ooc.open(path, PATTERN)
    view.take([0])
    with h5py.File(path) as file:
        dataset = file["data/demo_10/obs/u"].id
        offset = dataset.get_offset() or dataset.get_chunk_info(0).byte_offset
    os.truncate(path, offset)
    cache.forget()
    first = int(STARTS[10])
    with pytest.raises(TruncatedFileError) as caught:
        view.take([first + 2, first + 3, first + 2])
    assert (caught.value.key, caught.value.rows) == ("/data/demo_10/obs/u", (2, 3, 2))
    with pytest.raises(TruncatedFileError) as caught:
        view.windows(4, episodes="parts")[[len(view.windows(4)) - 2]].take([0])
    assert caught.value.key == "/data/demo_10/obs/u"
    assert set(caught.value.rows or ()) == {7, 8, 9, 10}


def test_a_damaged_chunk_names_dataset_and_rows(tmp_path: Path) -> None:
    path = write(tmp_path, "gzip")
    with h5py.File(path) as file:
        info = file["data/demo_10/obs/u"].id.get_chunk_info(2)  # rows 4 to 7
        assert info.chunk_offset == (4, 0, 0)
    with open(path, "r+b") as file:
        file.seek(info.byte_offset)
        file.write(b"\xff" * info.size)
    view = ooc.open(path, PATTERN)
    with pytest.raises(DamagedChunkError) as caught:
        view.take([int(STARTS[10]) + 5])
    assert (caught.value.key, caught.value.rows) == ("/data/demo_10/obs/u", (4, 5, 6, 7))


def test_a_deleted_file_names_dataset_and_rows(tmp_path: Path) -> None:
    view = ooc.open(write(tmp_path, "gzip"), PATTERN)
    os.unlink(view.storage.path or "")
    with pytest.raises(SourceError) as caught:
        view.take([int(STARTS[10]) + 5])
    assert (caught.value.key, caught.value.rows) == ("/data/demo_10/obs/u", (5,))


def test_verified_datasets(tmp_path: Path) -> None:
    path = write(tmp_path, "gzip")
    ooc.check(path, write_manifest=True)
    view = ooc.open(path, PATTERN, verify=True)
    assert_array_equal(np.asarray(view), WHOLE)
    assert len(view.windows(2)) == len(ooc.open(path, PATTERN).windows(2))
    with h5py.File(path, "a") as file:
        file["data/demo_3/obs/u"][2] = -1
    with pytest.raises(ChecksumError) as caught:
        np.asarray(ooc.open(path, PATTERN, verify=True))
    assert caught.value.key == "/data/demo_3/obs/u"
    assert 2 in (caught.value.rows or ())


# --- what it costs


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """Count the calls of a function."""
    calls: list[Any] = []
    real: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


def python_calls(function: Callable[[], Any]) -> int:
    """Count the calls of functions in Python."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("kind", ["contiguous", "gzip", "chunks"])
def test_one_file_is_opened_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, kind, [part for part in PARTS if len(part)])
    by_library = counted(monkeypatch, links, "open_file")
    tables = counted(monkeypatch, table, "open_file")
    descriptors = counted(monkeypatch, files, "Descriptor")
    alone = counted(monkeypatch, hdf5_opening, "_inspected")
    view = ooc.open(path, PATTERN)
    assert (len(by_library), len(alone), len(descriptors)) == (1, 1, 0)
    np.asarray(view)
    view.take(np.random.default_rng(0).permutation(ROWS))
    assert (len(by_library), len(tables), len(descriptors)) == (1, int(kind != "contiguous"), 1)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}], ids=["contiguous", "gzip"])
def test_ten_thousand_parts_of_one_file(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 10_000
    lengths = np.arange(count) % 3 + 1
    rows = np.arange(lengths.sum(), dtype="i4")[:, None] * [1, -1]
    path = tmp_path / "many.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for number, part in enumerate(np.split(rows, np.cumsum(lengths)[:-1])):
            file.create_dataset(f"data/demo_{number}/obs/u", data=part, **options)
        chunks = {file[f"data/demo_{number}/obs/u"].chunks for number in range(3)} - {None}
    by_library = counted(monkeypatch, links, "open_file")
    tables = counted(monkeypatch, table, "open_file")
    alone = counted(monkeypatch, hdf5_opening, "_inspected")
    objects = counted(monkeypatch, h5py.h5o, "open")
    before = len(os.listdir("/proc/self/fd"))
    view = ooc.open(path, PATTERN)
    assert (len(by_library), len(alone)) == (1, 1)
    assert len(objects) <= count + 10  # each dataset once
    assert_array_equal(view.parts.lengths, lengths)
    batches = view.batches(1000, shuffle=True, seed=0).epoch(0)
    seen = np.concatenate(list(batches))
    assert_array_equal(seen[seen[:, 0].argsort()], rows)
    assert (len(by_library), len(tables)) == (1, len(chunks))  # a table for each shape of chunks
    assert len(os.listdir("/proc/self/fd")) - before <= 4


def test_a_batch_of_contiguous_datasets_is_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [
        np.full((n % 3 + 1, 2000), n, "f4") for n in range(20)
    ]  # rows of 8 kB are read one by one
    view = ooc.open(write(tmp_path, "contiguous", parts), PATTERN)
    calls = counted(monkeypatch, files, "read_runs")
    rows = np.random.default_rng(0).permutation(len(view))
    assert_array_equal(view.take(rows), np.concatenate(parts)[rows])
    assert len(calls) == 1
    (_, offsets, _, lengths, _), *_ = calls
    assert len(offsets) * lengths == view.nbytes
    view.windows(2).take(range(len(view.windows(2))))
    assert len(calls) == 2


def test_each_chunk_is_decoded_once_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "gzip")
    decoded: Counter[int] = Counter()
    real = ChunkDecoder.decode

    def decode(self: ChunkDecoder, data: Any, skipped: int, out: np.ndarray) -> None:
        decoded[hash(bytes(data))] += 1
        real(self, data, skipped, out)

    monkeypatch.setattr(ChunkDecoder, "decode", decode)
    chunks = sum(-(-n // 4) * 2 for n in LENGTHS)
    loader = ooc.open(path, PATTERN).batches(5, shuffle="block", seed=1)
    seen = np.concatenate([loader.batch(step) for step in range(len(loader))])
    assert_array_equal(np.sort(seen[:, 0, 0]), WHOLE[:, 0, 0])
    assert sum(decoded.values()) == chunks
    assert set(decoded.values()) == {1}


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("shuffle", [True, "global", False])
def test_exactly_once_over_epochs_and_ranks(
    written: dict[str, Path], ranks: int, shuffle: Any
) -> None:
    for kind in ("contiguous", "auto"):
        exactly_once(written[kind], ranks, shuffle)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("contiguous", "auto")])
def test_exactly_once_over_two_ranks(written: dict[str, Path], kind: str) -> None:
    exactly_once(written[kind], 2, True)


def exactly_once(path: Path, ranks: int, shuffle: Any) -> None:
    windows = ooc.open(path, PATTERN).windows(4)  # 32 of them
    expected = np.sort([WHOLE[s + i, 0, 0] for s, n in zip(STARTS, LENGTHS) for i in range(n - 3)])  # noqa: B905
    loader = windows.batches(8, shuffle=shuffle, seed=3)
    for epoch in range(2):
        found = [
            loader.shard(ranks, index).batch(step, epoch)[:, 0, 0, 0]
            for index in range(ranks)
            for step in range(len(loader))
        ]
        assert_array_equal(np.sort(np.concatenate(found)), expected)


# --- many


@pytest.fixture(scope="module", params=["contiguous", "gzip"])
def many(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    parts = [WHOLE[: 1 + n % 3] + n for n in range(120)]
    return write(tmp_path_factory.mktemp("many"), request.param, parts)


@pytest.mark.parametrize("stored", [{}, {"chunks": (4, 8), "compression": "gzip"}])
def test_what_opening_many_keeps_is_within_what_is_said(
    tmp_path: Path, stored: dict[str, Any]
) -> None:
    """Measured in a process of its own, with 8 MiB for libraries and allocators."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(3000):
            file.create_dataset(f"d{number}", data=np.zeros((40, 8), "u1"), **stored)
    script = f"""
import gc, hashlib, os  # OpenSSL, 3.5 MiB
import oocdata as ooc
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
ooc.open({str(tmp_path / "a.h5")!r}, "d0")[0]
before = resident()
view = ooc.open({str(tmp_path / "a.h5")!r}, "d*")
gc.collect()
print(resident() - before, view.storage.table_bytes)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    grown, annotations = map(int, ran.stdout.split())
    assert grown <= annotations + (8 << 20)


def test_many_parts_are_a_small_table(many: Path) -> None:
    view = ooc.open(many, PATTERN)
    assert len(view.storage.parts) == 120
    assert 120 * 20 < view.storage.table_bytes - 120 * 4096 < 120 * 500  # HDF5 retains some of them
    assert len(pickle.dumps(view.source)) < 120 * 200
    again = pickle.loads(pickle.dumps(view.source))
    assert again.storage() == view.source.storage()
    loader = view.windows(2).batches(8, shuffle=True)
    assert len(as_json(loader)) < 1500
    found = json.dumps(describe(loader))
    assert PATTERN in found
    assert_array_equal(from_json(as_json(loader)).batch(3), loader.batch(3))
    source = view.source
    assert len(source.parts) == 1 if isinstance(source, Concat) else True


def test_another_set_of_parts_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "contiguous")
    saved = fingerprint(ooc.open(path, PATTERN).batches(4))
    assert fingerprint(ooc.open(path, PATTERN).batches(4)) == saved
    (tmp_path / "elsewhere").mkdir()
    moved = path.rename(tmp_path / "elsewhere" / "b.h5")
    assert fingerprint(ooc.open(moved, PATTERN).batches(4)) == saved
    with h5py.File(moved, "a") as file:  # the same rows in other episodes
        file.move("data/demo_1/obs/u", "data/demo_12/obs/u")
    with pytest.raises(RestoreError, match="content"):
        check_fingerprint(saved, fingerprint(ooc.open(moved, PATTERN).batches(4)))


def test_the_description_says_what_was_described(tmp_path: Path) -> None:
    path = write(tmp_path, "gzip")
    text = as_json(ooc.open(path, PATTERN).windows(2).batches(4))
    with h5py.File(path, "a") as file:
        file["data/demo_12/obs/u"] = PARTS[0]
    with pytest.raises(ooc.errors.DescriptionError, match=r"`loader\..*source\.shape` was"):
        from_json(text)


# --- annotations


def test_what_storage_says(tmp_path: Path) -> None:
    path = write(tmp_path, "gzip")
    storage = ooc.open(path, PATTERN).storage
    assert (storage.path, storage.key) == (str(path), PATTERN)
    assert storage.layout == "12 datasets, chunks of (4, 2, 2)"
    assert storage.chunks == (4, 2, 2)
    assert storage.episodes
    assert storage.parts == tuple(STARTS[:-1])
    assert storage.part_names[3] == (str(path), "/data/demo_3/obs/u")
    with h5py.File(path) as file:
        sizes = [file[key].id.get_storage_size() for _, key in storage.part_names]
    assert storage.stored_bytes == sum(sizes)
    auto = ooc.open(write(tmp_path, "auto", name="auto"), PATTERN).storage
    assert "stored in" in auto.layout


def test_attributes_that_all_share(tmp_path: Path) -> None:
    path = write(tmp_path, "contiguous")
    with h5py.File(path, "a") as file:
        for n in range(len(PARTS)):
            file[f"data/demo_{n}/obs/u"].attrs["units"] = "K"
            file[f"data/demo_{n}/obs/u"].attrs["number"] = n
    annotations = ooc.open(path, PATTERN).storage.annotations()
    assert annotations.attributes == {"units": "K", "number": None}


@pytest.mark.parametrize("kind", ["gzip", "npz", "zarr"])
def test_datasets_of_a_file_by_pattern(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind)
    with tree_of(str(path)) as tree:
        found = [name for name, _ in tree.matches("data/demo_1?/obs/u")]
    assert [name.strip("/") for name in found] == ["data/demo_10/obs/u", "data/demo_11/obs/u"]


def test_a_dataset_of_two_names_is_once_in_a_pattern(tmp_path: Path) -> None:
    """Also if each dataset is opened by itself, to be verified or padded."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["run_1"], file["run_2"] = PARTS[0], PARTS[3]
        file["run_3"] = h5py.SoftLink("/run_1")
    expected = np.concatenate([PARTS[0], PARTS[3]])
    assert_array_equal(np.asarray(ooc.open(path, "run_*")), expected)
    ooc.check(path, write_manifest=True)
    assert_array_equal(np.asarray(ooc.open(path, "run_*", verify=True)), expected)
    with h5py.File(path, "a") as file:
        file["run_4"] = np.zeros((2, 1, 2), "f4")
    assert len(ooc.open(path, "run_*", pad=0)) == len(expected) + 2


def test_chunks_of_unlike_lengths_share_their_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [np.full((20 + n % 7, 3, 2), n, "f4") for n in range(40)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for n, part in enumerate(parts):  # each is one chunk of its own length, h5py's default
            file.create_dataset(f"data/demo_{n}/obs/u", data=part, compression="gzip")
        assert file["data/demo_3/obs/u"].chunks == (23, 3, 2)
    view = ooc.open(tmp_path / "a.h5", PATTERN)
    source = view.source
    assert isinstance(source, Concat)
    assert len(source.parts) == 7  # one for each length of chunks
    assert view.storage.chunks == (26, 3, 2)
    calls = counted(monkeypatch, ChunkDecoder, "decode")
    rows = np.random.default_rng(0).permutation(len(view))
    assert_array_equal(view.take(rows), np.concatenate(parts)[rows])
    assert len(calls) == 40
    windows = view.windows(5)
    assert len(windows) == sum(len(part) - 4 for part in parts)
    found = windows.take(range(len(windows)))
    assert (found == found[:, :1, :1, :1]).all()
    assert len(calls) == 40
    blocks = view.batches(8, shuffle="block")
    cache.forget()
    seen = np.concatenate([blocks.batch(step) for step in range(len(blocks))])
    assert_array_equal(np.sort(seen[:, 0, 0]), np.sort(np.concatenate(parts)[:, 0, 0]))
    assert len(calls) == 80
    again = pickle.loads(pickle.dumps(view.source))
    assert_array_equal(np.asarray(ooc.open(again)), np.concatenate(parts))


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}], ids=["contiguous", "gzip"])
def test_little_is_done_for_each_part(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first part is opened on its own, whatever the lengths of the chunks."""
    alone = counted(monkeypatch, hdf5_opening, "_inspected")
    counts = {}
    for parts in (60, 160):
        path = tmp_path / f"{parts}.h5"
        with h5py.File(path, "w") as file:
            for n in range(parts):
                file.create_dataset(f"data/demo_{n}/u", data=np.ones((20 + n % 13, 3)), **options)
        ooc.open(path, "data/demo_*/u")
        alone.clear()
        counts[parts] = python_calls(lambda path=path: ooc.open(path, "data/demo_*/u"))
        assert len(alone) == 1
    assert (counts[160] - counts[60]) / 100 < 60


def test_parts_mostly_shorter_than_the_longest(tmp_path: Path) -> None:
    """A grid is at most about twice as long as the parts in it."""
    lengths = [3, 4, 5, 500, 6, 3, 4, 450, 0, 5]
    parts = [np.full((n, 2), at, "i4") for at, n in enumerate(lengths)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for n, part in enumerate(parts):
            options = {"chunks": True, "compression": "gzip"} if len(part) else {}
            file.create_dataset(f"r{n}", data=part, **options)
    view = ooc.open(tmp_path / "a.h5", "r*")
    assert_array_equal(np.asarray(view), np.concatenate(parts))
    places = sum(part.shape[0] for part in view.source.parts)  # type: ignore[attr-defined]
    assert places < 2 * sum(lengths)
    assert [len(part) for part in parts] == view.parts.lengths.tolist()


def test_parts_of_one_long_chunk_and_of_several(tmp_path: Path) -> None:
    """Some parts are a single chunk of their own length, others are several equal chunks."""
    lengths, steps = (9, 4, 8, 30, 8, 2, 16), (3, 4, 8, 8, 16, 3, 20)
    parts = [np.arange(n * 2, dtype=">i2").reshape(n, 2) + 100 * n for n in lengths]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for n, (part, step) in enumerate(zip(parts, steps, strict=True)):
            file.create_dataset(
                f"r{n}", data=part, chunks=(step, 2), maxshape=(None, 2), compression="lzf"
            )
    view = ooc.open(tmp_path / "a.h5", "r*")
    whole = np.concatenate(parts)
    assert_array_equal(np.asarray(view), whole)
    rows = np.random.default_rng(0).integers(0, len(whole), 200)
    assert_array_equal(view.take(rows), whole[rows])
    assert_array_equal(np.asarray(pickle.loads(pickle.dumps(view))), whole)
    assert len(view.source.parts) == 5  # type: ignore[attr-defined]


def test_short_datasets_that_fit_in_the_cache_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a grid of the longest they would not fit."""
    lengths = np.linspace(40, 200, 60).astype(int)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, length in enumerate(lengths):
            rows = np.full((length, 64), number, "f4")
            file.create_dataset(f"r{number}", data=rows, chunks=rows.shape, compression="gzip")
    decoded: list[int] = []
    decode = ChunkDecoder.decode
    monkeypatch.setattr(
        ChunkDecoder, "decode", lambda *given: (decoded.append(1), decode(*given))[1]
    )
    monkeypatch.setattr(cache, "budget", lambda: int(1.6 * lengths.sum() * 256))
    cache.forget()
    view = ooc.open(tmp_path / "a.h5", "r*")
    rows = np.random.default_rng(0).permutation(len(view))
    numbers = np.repeat(np.arange(60), lengths)
    for _ in range(2):
        for start in range(0, len(rows), 100):
            got = view.take(rows[start : start + 100])
            assert (got == numbers[rows[start : start + 100], None]).all()
    assert len(decoded) == 60


@pytest.mark.parametrize("fills", [(7, 7), (7, 8)], ids=["one fill value", "two"])
def test_chunks_of_unlike_lengths_never_written(tmp_path: Path, fills: tuple[int, int]) -> None:
    expected = []
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for n, length in enumerate((5, 6, 7, 8)):
            made = file.create_dataset(
                f"r{n}", (length, 2), "f4", chunks=(length, 1), compression="gzip",
                fillvalue=fills[n % 2],
            )  # fmt: skip
            made[:, 1] = n
            expected.append(made[...])
    view = ooc.open(tmp_path / "a.h5", "r*", missing="fill")
    assert_array_equal(np.asarray(view), np.concatenate(expected))


def test_files_of_chunk_files_are_parts(tmp_path: Path) -> None:
    parts = [np.full((6, 5000), n, "f4") for n in range(2)]
    for n, part in enumerate(parts):  # uncompressed, each row 20 kB: chunks are files of rows
        path = tmp_path / f"{n}.zarr"
        zarr.create_array(path, data=part, chunks=(2, 5000), compressors=None, fill_value=-1)
    view = ooc.open([tmp_path / "0.zarr", tmp_path / "1.zarr"])
    assert view.storage.parts == (0, 6)
    assert len(view.windows(2, episodes="files")) == 10
    assert_array_equal(np.asarray(view), np.concatenate(parts))


@pytest.mark.parametrize("suffix", ["h5", "zarr", "npz"])
def test_an_error_names_a_pattern_for_numbered_groups(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"demos.{suffix}"
    arrays = {
        f"data/demo_{demo}/{name}": np.full((demo + 1, 2), demo + 1, dtype)
        for demo in range(25)
        for name, dtype in (("actions", "f4"), ("obs/state", "f8"))
    }
    arrays["mask/train"] = np.arange(3)
    if suffix == "npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
    elif suffix == "h5":
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    else:
        group = zarr.open_group(path, mode="w")
        for name, array in arrays.items():
            group[name] = array
    for key in (None, "nothing", "no*/actions"):
        with pytest.raises((MissingKeyError, SeveralDatasetsError)) as raised:
            ooc.open(path, key)
        listed = str(raised.value).partition("old")[2].partition("[file")[0]
        keys = [name.strip(" '/.") for name in listed.partition(":")[2].split(",")]
        assert keys == ["data/demo_*/actions", "data/demo_*/obs/state", "mask/train"]
    for key in keys:
        found = [array for name, array in arrays.items() if fnmatch(name, key)]
        assert_array_equal(ooc.open(path, key).read_all(), np.concatenate(found))


# Fields and packed numbers of several datasets --------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"chunks": (3,), "compression": "gzip"}])
def test_a_field_of_datasets_of_unlike_lengths(tmp_path: Path, options: dict[str, Any]) -> None:
    expected = []
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, length in enumerate((5, 7, 0, 4)):
            rows = np.zeros(length, [("place", "f4", (2,)), ("id", "i8")])
            rows["id"] = 10 * number + np.arange(length)
            rows["place"] = -rows["id"][:, None]
            file.create_dataset(f"run_{number}/rows", data=rows, **(options if length else {}))
            expected.append(rows)
    rows = np.concatenate(expected)
    view = ooc.open(tmp_path / "a.h5", "run_*/rows")
    for name in ("id", "place"):
        for field in (view[name], ooc.open(tmp_path / "a.h5", "run_*/rows", field=name)):
            assert_array_equal(np.asarray(field), rows[name])
            assert len(field.windows(2)) == 4 + 6 + 3
            again = ooc.open(**dict(field.storage.opened or {}))
            assert_array_equal(np.asarray(again), rows[name])


def test_decoded_numbers_of_datasets_of_unlike_lengths(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, length in enumerate((5, 7, 4)):
            rows = 10 * number + np.arange(length, dtype="i2")
            options: dict[str, Any] = {"chunks": (3,), "compression": "gzip"}
            file.create_dataset(f"run_{number}/plain", data=rows, **options)
            packed = file.create_dataset(f"run_{number}/packed", data=rows, **options)
            packed.attrs["scale_factor"] = np.float32(2)
    plain = ooc.open(tmp_path / "a.h5", "run_*/plain", decode=True)
    packed = ooc.open(tmp_path / "a.h5", "run_*/packed", decode=True)
    raw = np.concatenate([10 * number + np.arange(n) for number, n in enumerate((5, 7, 4))])
    assert_array_equal(np.asarray(plain), raw)
    assert_array_equal(np.asarray(packed), raw * 2)
    for view in (plain, packed):
        assert len(view.windows(2)) == 4 + 6 + 3
        again = ooc.open(**dict(view.storage.opened or {}))
        assert_array_equal(np.asarray(again), np.asarray(view))
