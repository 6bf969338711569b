"""Read each layout in each way at a URL, and compare with the same file on a disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anndata_files import random_csr, write_file
from numpy.testing import assert_array_equal
from servers.ranges import RangeServer
from stored_layouts import LAYOUTS, Layout

import oocdata as ooc
from oocdata.datasets.spec import leaves
from oocdata.engines.cache import cache as chunk_cache


class Written:
    """A folder with all layouts, and a server for it."""

    def __init__(self, folder: Path, server: RangeServer) -> None:
        self.folder, self.server = folder, server
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zarr: dtypes and consolidated metadata of v3
            self.layouts = {name: write(folder, name) for name, write in LAYOUTS.items()}

    def url(self, name: str) -> Any:
        return self._under(self.server.url, name)

    def path(self, name: str) -> Any:
        return self._under(str(self.folder), name)

    def _under(self, root: str, name: str) -> Any:
        paths = self.layouts[name].name
        return f"{root}/{paths}" if isinstance(paths, str) else [f"{root}/{p}" for p in paths]

    def opened(self, name: str) -> tuple[ooc.View, Layout]:
        layout = self.layouts[name]
        return ooc.open(self.url(name), **layout.options), layout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    folder = tmp_path_factory.mktemp("stored")
    with RangeServer(folder) as server:
        yield Written(folder, server)


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    chunk_cache.forget()


def assert_same(one: ooc.Loader, other: ooc.Loader, epochs: int) -> None:
    assert len(one) == len(other) > 0
    for number in range(epochs):
        for got, expected in zip(one.epoch(number), other.epoch(number), strict=True):
            for a, b in zip(leaves(got), leaves(expected), strict=True):
                assert a.dtype == b.dtype
                assert_array_equal(a, b)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_shuffled_epoch(written: Written, name: str) -> None:
    """NumPy is the oracle."""
    view, layout = written.opened(name)
    assert view.shape == layout.array.shape
    loader = view.batches(8, shuffle=True, seed=1)
    for step, batch in enumerate(loader):
        assert_array_equal(batch, layout.array[loader.positions(step)])
    assert_array_equal(view[5], layout.array[5])
    assert_array_equal(view.take([59, 0, 59]), layout.array[[59, 0, 59]])


pytestmark = pytest.mark.filterwarnings("ignore::oocdata.errors.PartBorderWarning")

WAYS: dict[str, Callable[[ooc.View], ooc.Loader]] = {
    "in order": lambda v: v.batches(7),
    "by rows": lambda v: v.batches(7, shuffle="global"),
    "by blocks": lambda v: v.batches(7, shuffle="block"),
    "parts": lambda v: v[3:57:2].batches(5, shuffle=True),
    "windows": lambda v: v.windows(3, 2, stride=2).batches(6, shuffle=True),
    "pair": lambda v: ooc.zip(v, v[::-1]).batches(7, shuffle=True),
    "concat": lambda v: ooc.concat([v[30:], v[:7]]).batches(7, shuffle=True),
    "stack": lambda v: ooc.stack([v, v], axis=0).batches(7, shuffle=True),
    "cache": lambda v: v.cache().batches(7, shuffle=True),
    "large batches": lambda v: v.batches(60, shuffle=True),
}
OF_NUMBERS: dict[str, Callable[[ooc.View], ooc.Loader]] = {
    "patches": lambda v: v.patches((2, 3), axes=(0, 1), step=2).batches(9, shuffle=True),
    "crops": lambda v: v[:, 1:5, ::2].batches(7, shuffle=True),
    "transpose": lambda v: v.transpose().batches(7, shuffle=True),
    "astype": lambda v: v.astype("f8").batches(7, shuffle=True),
}


def pairs() -> list[Any]:
    """All pairs of layout and way; by default a fifth of them, each layout in 3 ways."""
    made = []
    for number, name in enumerate(LAYOUTS):
        for turn, way in enumerate([*WAYS, *OF_NUMBERS]):
            if "text" in name and way in ("stack", *OF_NUMBERS):
                continue
            daily = (number + turn) % 5 == 2 or (name, way) == ("npy-big-endian", "concat")
            marks = [] if daily else [pytest.mark.thorough]
            made.append(pytest.param(name, way, marks=marks, id=f"{name}-{way}"))
    return made


@pytest.mark.parametrize(("name", "way"), pairs())
def test_as_the_local_file(written: Written, name: str, way: str) -> None:
    options = written.layouts[name].options
    make = {**WAYS, **OF_NUMBERS}[way]
    remote = make(ooc.open(written.url(name), **options))
    local = make(ooc.open(written.path(name), **options))
    assert_same(remote, local, epochs=2 if way == "cache" else 1)


@pytest.mark.parametrize("name", [name for name in LAYOUTS if "text" not in name])
def test_parts_of_no_numbers(written: Written, name: str) -> None:
    view, layout = written.opened(name)
    assert view[:, :0].batches(60).batch(0).shape == layout.array[:, :0].shape


@pytest.mark.parametrize("cached", [False, True])
def test_rows_without_numbers_far_from_others(tmp_path: Path, cached: bool) -> None:
    """Some positions of a batch, or all."""
    matrix = random_csr(40, 20_000, 0.3)
    path = write_file(tmp_path / "a.h5ad", matrix)
    empty = np.flatnonzero(np.diff(matrix.indptr) == 0)
    with RangeServer(tmp_path) as server:
        cache = tmp_path / "cache" if cached else None
        view = ooc.open(f"{server.url}/{Path(path).name}", "X", cache=cache)
        for rows in (empty, [3, empty[1], 33], empty[:1]):
            assert_array_equal(view.take(rows), matrix[rows].toarray())
