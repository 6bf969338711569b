"""Boxes of several files in few calls, with the same numbers and errors as file by file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines import files, many_files, runs
from oocdata.engines.concat import Concat, concatenate
from oocdata.engines.source import Source
from oocdata.errors import MissingFileError, SourceError, TruncatedFileError
from oocdata.formats.npy import open_npy, open_raw
from oocdata.testing import SourceConformance, boxes_of, sample_array


def saved(folder: Path, parts: list[np.ndarray], axis: int = 0) -> Source:
    for number, part in enumerate(parts):
        np.save(folder / f"{number}.npy", part)
    return concatenate([open_npy(str(folder / f"{n}.npy")) for n in range(len(parts))], axis)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Count the runs of each call that reads several files, and of each that reads one."""
    seen: dict[str, list[int]] = {"several": [], "one": []}
    for module, name in ((many_files, "several"), (files, "one")):

        def counted(
            file: Any, offsets: Any, *rest: Any, name: str = name, real: Any = module.read_runs
        ) -> None:
            seen[name].append(len(offsets))
            real(file, offsets, *rest)

        monkeypatch.setattr(module, "read_runs", counted)
    return seen


class TestManyFiles(SourceConformance):
    dtypes = (">f4", "<f8", "|u1", ">i2", "|b1", "<c8")

    def make(self, folder: Path, array: np.ndarray) -> Source:
        third = len(array) // 3
        return saved(folder, np.split(array, [third, third, third + 1, third + 4]))


@given(st.data())
def test_any_boxes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(data.draw(st.integers(1, 3))))
    dtype = data.draw(st.sampled_from(["<i4", ">i4", "u1"]))
    array = sample_array(shape, dtype)
    axis = data.draw(st.integers(0, len(shape) - 1))
    order = data.draw(st.sampled_from(["C", "F"]))
    borders = sorted(data.draw(st.lists(st.integers(0, shape[axis]), max_size=5)))
    parts = [np.asarray(part, order=order) for part in np.split(array, borders, axis)]  # type: ignore[call-overload]
    source = saved(tmp_path_factory.mktemp("parts"), parts, axis)
    strides = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    lengths = tuple(
        data.draw(st.integers(1, (n - 1) // s + 1)) for n, s in zip(shape, strides, strict=True)
    )
    extent = Extent(lengths, strides)
    origin = st.tuples(*[st.integers(0, n - s) for n, s in zip(shape, extent.spans, strict=True)])
    origins = np.array(data.draw(st.lists(origin, min_size=1, max_size=9)))
    wanted = data.draw(st.sampled_from([array.dtype.newbyteorder("="), "f8"]))
    out = np.empty((len(origins), *lengths[::-1]), wanted).transpose(0, *range(len(shape), 0, -1))
    if data.draw(st.booleans()):
        out = np.empty((len(origins), *lengths), wanted)
    source.read(origins, extent, out)
    assert_array_equal(out, boxes_of(array, origins, extent))


def test_rows_of_many_files_are_read_in_few_calls(tmp_path: Path, calls: Any) -> None:
    array = sample_array((400, 3, 5))
    view = View.of(saved(tmp_path, np.split(array, 100)))
    rows = np.random.default_rng(0).permutation(400)
    assert_array_equal(view.take(rows), array[rows])
    assert calls == {"several": [256, 144], "one": []}  # 64 files, then 36
    assert_array_equal(view.take([7, 8, 5, 5]), array[[7, 8, 5, 5]])
    assert calls["several"][2:] == [4]
    assert_array_equal(view.take([4, 7, 6]), array[[4, 7, 6]])  # rows of one file
    assert calls["one"] == [3]


def test_windows_within_a_file_are_read_with_those_of_others(tmp_path: Path, calls: Any) -> None:
    array = sample_array((40, 3))
    source = saved(tmp_path, np.split(array, 8))
    origins = np.array([[36, 0], [1, 0], [5, 0], [0, 0]])
    out = np.empty((4, 4, 3), "f4")
    source.read(origins, Extent.of((4, 3)), out)
    assert_array_equal(out, boxes_of(array, origins, Extent.of((4, 3))))
    assert calls == {"several": [4], "one": []}


def test_files_of_other_layouts_are_read_one_by_one(tmp_path: Path, calls: Any) -> None:
    parts = [sample_array((4, 3)), np.asfortranarray(sample_array((5, 3)))]
    assert_array_equal(View.of(saved(tmp_path, parts)).take([5, 0]), np.concatenate(parts)[[5, 0]])
    assert not calls["several"]


def test_numbers_at_another_offset_in_each_file(tmp_path: Path) -> None:
    array, parts = sample_array((30, 4)), []
    for number, part in enumerate(np.split(array, 3)):
        path = tmp_path / str(number)
        path.write_bytes(bytes(8 * number) + part.tobytes())
        opened = open_raw(str(path), dtype=part.dtype, shape=part.shape, offset=8 * number)
        parts.append(opened)
    rows = [0, 12, 25, 3, 29]
    assert_array_equal(View.of(concatenate(parts, 0)).take(rows), array[rows])


def test_neighbours_of_two_files_are_not_joined(tmp_path: Path) -> None:
    array = sample_array((40, 6))
    view = View.of(saved(tmp_path, np.split(array, 8)))
    rows = [0, 6, 12, 18, 19, 4, 10, 16]
    assert_array_equal(view.take(rows), array[rows])


@pytest.mark.parametrize("ring", [True, False], ids=["in one call", "one by one"])
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path: os.truncate(path, 140), TruncatedFileError),
        (lambda path: os.utime(path, ns=(0, 0)), SourceError),
        (os.unlink, MissingFileError),
    ],
    ids=["cut short", "written to", "gone"],
)
def test_errors_name_the_file_and_its_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Any,
    expected: type[SourceError],
    opened: bool,
    ring: bool,
) -> None:
    monkeypatch.setattr(runs, "_MANY", 1 if ring else 10**9)
    array = sample_array((20, 3))
    view = View.of(saved(tmp_path, np.split(array, 4)))
    if opened:
        view.take(np.arange(20))
    change(tmp_path / "2.npy")
    assert_array_equal(view.take([0, 9, 17]), array[[0, 9, 17]])
    if opened and expected is MissingFileError:
        assert_array_equal(
            view.take([0, 14]), array[[0, 14]]
        )  # rows of the file that is still open
        return
    with pytest.raises(expected) as raised:
        view.take([14, 0, 13, 6])
    assert (raised.value.path, raised.value.rows) == (str(tmp_path / "2.npy"), (4, 3))


def test_a_file_written_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = View.of(saved(tmp_path, np.split(sample_array((20, 3)), 4)))
    real = many_files.read_runs

    def while_another_writes(*arguments: Any) -> None:
        real(*arguments)
        os.utime(tmp_path / "2.npy", ns=(0, 0))

    monkeypatch.setattr(many_files, "read_runs", while_another_writes)
    with pytest.raises(SourceError, match="has changed") as raised:
        view.take([14, 0, 13, 6])
    assert raised.value.path == str(tmp_path / "2.npy")


def test_a_batch_of_any_size_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oocdata.engines import plan

    monkeypatch.setattr(plan, "_MOST_BYTES", 100)
    array = sample_array((60, 3), ">f4")
    source = saved(tmp_path, np.split(array, 6))
    assert isinstance(source, Concat)
    rows = np.random.default_rng(0).integers(0, 60, 200)
    assert_array_equal(View.of(source).take(rows), array[rows])
