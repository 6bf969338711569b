"""Descriptions of loaders: what can be described, what can't, and what decoding refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import xarray
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from recording import RecordingSource
from servers.ranges import RangeServer
from stored_layouts import LAYOUTS
from zarr.storage import MemoryStore

import oocdata as ooc
from oocdata.datasets.spec import leaves
from oocdata.describe import FORMAT, as_json, describe, from_json
from oocdata.describe.decoding import decode_integers
from oocdata.describe.encoding import encode_integers
from oocdata.errors import (
    DescriptionError,
    MissingFileError,
    OocdataError,
    SourceError,
)
from oocdata.testing import sample_array

pytestmark = pytest.mark.filterwarnings("ignore::oocdata.errors.PartBorderWarning")

HERE = (__name__,)
"""Decoding may import names of this module."""

ROWS = sample_array((60, 3, 5), "<f4")


def sent(loader: ooc.Loader, allow: tuple[str, ...] = HERE) -> ooc.Loader:
    """Return the loader that is decoded from the description of a loader."""
    return from_json(as_json(loader), allow=allow)


def assert_same_batches(one: ooc.Loader, other: ooc.Loader) -> None:
    assert len(one) == len(other)
    assert one.spec == other.spec
    for step, epoch in {(0, 0), (len(one) - 1, 0), (len(one) // 2, 3)}:
        pairs = zip(leaves(one.batch(step, epoch)), leaves(other.batch(step, epoch)), strict=True)
        for a, b in pairs:
            assert a.dtype == b.dtype
            assert_array_equal(a, b)


# ---- sources: one for each reader ----


def npy(folder: Path) -> ooc.View:
    np.save(folder / "a.npy", ROWS)
    return ooc.open(folder / "a.npy")


def memmap(folder: Path) -> ooc.View:
    np.save(folder / "a.npy", ROWS)
    return ooc.open(np.load(folder / "a.npy", mmap_mode="r")[10:])


def writable_memmap(folder: Path) -> ooc.View:
    np.save(folder / "a.npy", ROWS)
    return ooc.open(np.load(folder / "a.npy", mmap_mode="r+"))


def hdf5(folder: Path, *, array: NDArray[Any] = ROWS, **options: Any) -> ooc.View:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("u", data=array, **options)
    return ooc.open(folder / "a.h5", "/u")


def hdf5_virtual(folder: Path) -> ooc.View:
    hdf5(folder)
    layout = h5py.VirtualLayout((60, 3, 5), "<f4")
    layout[:] = h5py.VirtualSource(folder / "a.h5", "u", (60, 3, 5))
    with h5py.File(folder / "v.h5", "w") as file:
        file.create_virtual_dataset("u", layout)
    return ooc.open(folder / "v.h5", external=True)


def zarr_array(folder: Path, *, array: NDArray[Any] = ROWS, **options: Any) -> ooc.View:
    write(folder / "a.zarr", array, **options)
    return ooc.open(folder / "a.zarr")


def write(store: Any, array: NDArray[Any], **options: Any) -> Any:
    """Write a Zarr array, by default in chunks of 7 rows."""
    options = {"chunks": (7, *array.shape[1:]), **options}
    stored = zarr.create_array(
        str(store) if isinstance(store, Path) else store,
        shape=array.shape, dtype=array.dtype, **options,
    )  # fmt: skip
    stored[...] = array
    return stored


def zarr_in_a_group_by_url(folder: Path) -> ooc.View:
    group = zarr.create_group(folder / "g.zarr")
    for name in ("a", "b/c"):
        stored = group.create_array(name, shape=ROWS.shape, dtype="<f4", chunks=(7, 3, 5))
        stored[...] = ROWS
    return ooc.open((folder / "g.zarr").as_uri(), "b/c")


def parts(folder: Path) -> ooc.View:
    for number, part in enumerate(np.split(ROWS, [20, 33])):
        np.save(folder / f"part{number}.npy", part)
    return ooc.open(folder / "part*.npy")


LOCAL: dict[str, Callable[[Path], ooc.View]] = {
    "memmap": memmap,
    "writable memmap": writable_memmap,
    "HDF5 virtual": hdf5_virtual,
    "Zarr by zarr-python": partial(
        zarr_array, zarr_format=2, compressors=None, filters=[numcodecs.Delta("<f4")]
    ),
    "Zarr by URL": zarr_in_a_group_by_url,
    "parts": parts,
    "several sample axes": lambda folder: ooc.open(npy(folder).storage.path, axis=(1, 0)),
}


STORED = (
    *("npy", "npy-fortran-big-endian", "npy-several", "npz-stored", "raw"),
    *("hdf5-contiguous", "hdf5-chunked", "hdf5-gzip-cut", "hdf5-scaleoffset", "hdf5-compact"),
    *("hdf5-pattern-gzip", "hdf5-holes", "netcdf-packed"),
    *("zarr-v3", "zarr-v2", "zarr-shards", "zarr-v3-raw", "zarr-group"),
)


@pytest.mark.parametrize("name", [*LOCAL, *STORED])
def test_every_source(tmp_path: Path, name: str) -> None:
    if name in LOCAL:
        view = LOCAL[name](tmp_path)
    else:
        paths, _, options = LAYOUTS[name](tmp_path, "a")
        listed = [tmp_path / path for path in paths] if isinstance(paths, list) else None
        view = ooc.open(listed or tmp_path / paths, **options)
    for chosen in (view, view[3:-3:2, 1:].astype("f8").next_frame()):
        loader = chosen.batches(7, shuffle=True, seed=3)
        again = sent(loader)
        assert_same_batches(loader, again)
        assert describe(again) == describe(loader)
        one, other = (each.dataset.sources()[0].storage() for each in (loader, again))
        assert (one.path, one.chunks, one.strides) == (other.path, other.chunks, other.strides)


def test_a_url(tmp_path: Path) -> None:
    zarr_array(tmp_path)
    with RangeServer(tmp_path) as server:
        loader = ooc.open(f"{server.url}/a.zarr").batches(7)
        assert_same_batches(loader, sent(loader))


# ---- datasets, orders and functions ----


def double(x: NDArray[Any]) -> NDArray[Any]:
    return x * 2


def noisy(x: NDArray[Any], *, rng: np.random.Generator) -> NDArray[Any]:
    return x + rng.random(x.shape)


@dataclass(frozen=True)
class Scale:
    """A function with parameters."""

    mean: NDArray[Any]
    factor: float = 1.0

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        return (x - self.mean) * self.factor


def at(x: NDArray[Any], rows: Any) -> NDArray[Any]:
    return np.stack([element[rows] for element in x])


@dataclass(frozen=True)
class At:
    """A function with a field of any kind."""

    rows: Any

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        return at(x, self.rows)


@dataclass(frozen=True)
class Backwards(ooc.Order):
    """A user-defined order."""

    start: int = 0

    def epoch_order(self, count: int, seed: int, epoch: int) -> Any:
        return lambda places: count - 1 - places


@dataclass(frozen=True)
class Ramp:
    """A user-defined source."""

    rows: int

    dtype = np.dtype("i8")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows,)

    def read_rows(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        out[...] = rows


def test_a_user_defined_source() -> None:
    loader = ooc.open(Ramp(100)).batches(7, shuffle=True)
    assert_same_batches(loader, sent(loader))
    with pytest.raises(DescriptionError, match="is not allowed"):
        sent(loader, ())


ORDERS = [False, True, "global", ooc.BlockShuffle(5, 2), Backwards()]

COMPOSED: dict[str, Callable[[ooc.View], ooc.Dataset]] = {
    "cut, converted": lambda v: v[:, ::-1, 0].astype("i4"),
    "pairs": lambda v: v.next_frame(horizon=3)[::-2],
    "windows": lambda v: v.windows(3, 2, shift=2, stride=2)[[5, 0, 9, 3]],
    "padded": lambda v: v.windows((-3, -1, 0), 2, pad=True)[5:],
    "episodes": lambda v: v.windows(2, 1, episodes=[10, 20, 30]),
    "files": lambda v: v.next_frame(episodes="parts"),
    "patches": lambda v: v.patches((2, 2), per_row=3),
    "zip": lambda v: ooc.zip(v, v[::-1])[np.arange(60) % 3 > 0],
    "dict": lambda v: ooc.zip({"b": v, "a": v[:, 1]}),
    "map": lambda v: v.map(double).map(double)[5:],
    "rng": lambda v: v.map(noisy, rng=True),
    "a function of its own": lambda v: v.map(Scale(np.ones((3, 5), "f4"), 0.5)),
    "by element": lambda v: v.map(double, batched=False),
    "functions, fewer": lambda v: ooc.concat([v.map(double), v[:9].map(double)])[::-3],
    "beside a number": lambda v: ooc.stack([v[..., 0], v[..., 3], 1], axis=0),
    "beside a whole number": lambda v: ooc.stack([v.astype("i4"), 7]),
    "beside numbers": lambda v: ooc.concatenate([v, np.ones((3, 2), "f4")]),
    "beside a constant": lambda v: ooc.stack([v, np.asarray(v[:1])]),
    "numbered": lambda v: v.enumerate().filter(np.arange(60) % 3 > 0),
    "trajectories": lambda v: ooc.windows({"a": (v, (-1, 0)), "b": (v, (1,))}, pad=True),
    "a spec": lambda v: v.map(np.square, spec=v.map(np.square)[0]),
}


# Random chains in all formats: test_state_machine.py.
@pytest.mark.parametrize("rows", [[0, 1], (0, 1), ([0, 1], [1, 0]), [[0, 1], [1, 0]]])
@pytest.mark.parametrize("kind", [partial(partial, at), At], ids=["argument", "field"])
def test_lists_stay_lists(tmp_path: Path, rows: Any, kind: Any) -> None:
    """NumPy takes ``x[[0, 1]]`` for two rows, and ``x[(0, 1)]`` for one number."""
    fn = kind(rows=rows)
    loader = npy(tmp_path).map(fn).batches(7)
    assert_same_batches(loader, sent(loader))


@pytest.mark.parametrize("make", COMPOSED.values(), ids=COMPOSED)
def test_every_composition(tmp_path: Path, make: Callable[[ooc.View], ooc.Dataset]) -> None:
    dataset = make(parts(tmp_path))
    for shuffle, seed in zip(ORDERS, (0, 7, -1, 2**70, 3), strict=True):
        loader = dataset.batches(4, shuffle=shuffle, seed=seed, drop_remainder=seed == 7)
        alone = isinstance(shuffle, ooc.BlockShuffle)  # of one lane
        shards = [loader] if alone else [loader, loader.shard(2, 1)]
        for one in shards:
            again = sent(one, (*HERE, "numpy"))
            assert_same_batches(one, again)
            assert describe(again) == describe(one)


def test_rows_selected_by_a_mask_are_small() -> None:
    rows = np.flatnonzero(np.random.default_rng(0).random(100_000) < 0.5)
    assert len(json.dumps(encode_integers(rows))) < 1.4 * len(rows)
    assert_array_equal(decode_integers(encode_integers(rows)), rows)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_of_any_size(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    found = decode_integers(json.loads(json.dumps(encode_integers(array))))
    assert found.dtype == np.int64
    assert_array_equal(found, array)


def test_a_source_is_opened_once(tmp_path: Path) -> None:
    view = hdf5(tmp_path, chunks=(7, 3, 5), compression="gzip")
    again = sent(ooc.zip(view[:, :1], view[:, 1:]).batches(4))
    one, two = (part.source for part in again.dataset.parts)
    assert one is two


SCRIPT = """
import sys, numpy as np, oocdata as ooc
from oocdata.describe import as_json
views = [ooc.open(path) for path in sys.argv[1:]]
both = ooc.zip({path[-3:]: view for path, view in zip(sys.argv[1:], views)})
pairs = both[np.arange(50) % 3 > 0].batches(8, shuffle=True)
print(as_json(pairs))
"""


def test_another_process_writes_the_same_description(tmp_path: Path) -> None:
    npy(tmp_path)
    hdf5(tmp_path, chunks=(7, 3, 5), compression="gzip")
    zarr_array(tmp_path)
    paths = [str(tmp_path / name) for name in ("a.npy", "a.h5", "a.zarr")]
    views = [ooc.open(path)[:50] for path in paths]
    code = SCRIPT.replace("ooc.open(path)", "ooc.open(path)[:50]")
    found = subprocess.run(
        [sys.executable, "-c", code, *paths],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONHASHSEED": "1"},  # not that of this process
    ).stdout
    both = ooc.zip({path[-3:]: view for path, view in zip(paths, views, strict=True)})
    here = as_json(both[np.arange(50) % 3 > 0].batches(8, shuffle=True))
    assert found == here + "\n"


# ---- what can't be described ----


class Own:
    def method(self, x: NDArray[Any]) -> NDArray[Any]:
        return x


@dataclass
class Melting:
    """Not frozen."""

    factor: float = 1.0

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        return x


@dataclass(frozen=True)
class Holding:
    held: Any

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        return x


def closure() -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda x: x


def inner() -> Callable[[NDArray[Any]], NDArray[Any]]:
    def named(x: NDArray[Any]) -> NDArray[Any]:
        return x

    return named


def script_function(x: NDArray[Any]) -> NDArray[Any]:
    return x


script_function.__module__ = "__main__"


def replaced(x: NDArray[Any]) -> NDArray[Any]:
    return x


before = replaced


def replaced(x: NDArray[Any]) -> NDArray[Any]:  # type: ignore[no-redef]
    return x * 2


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (closure(), "a lambda has no name"),
        (inner(), "defined inside a function"),
        (partial(closure()), "a lambda has no name"),
        (Own().method, "gives another object"),
        (script_function, "the script itself"),
        (before, "gives another object"),
        (Melting(), "have no import path"),
        (Holding([threading.Lock()]), "lock"),
        (Holding({1, 2}), "Make its class a frozen dataclass"),
        (Holding(b"bytes"), "Make its class a frozen dataclass"),
        (Holding(np.array([None])), "numbers"),
        (Holding(lambda: 0), "`loader.dataset.fn.held` is not: a lambda"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_functions_that_can_not_be_imported(tmp_path: Path, fn: Any, said: str) -> None:
    with pytest.raises(DescriptionError, match=said) as caught:
        describe(npy(tmp_path).map(fn).batches(4))
    assert "loader.dataset.fn" in str(caught.value)


def in_memory(folder: Path) -> Any:
    return ROWS


def open_dataset(folder: Path) -> Any:
    return h5py.File(folder / "b.h5", "w", driver="core", backing_store=False).create_dataset(
        "u", data=ROWS
    )


def in_a_store(folder: Path) -> Any:
    return write(MemoryStore(), ROWS)


def in_xarray(folder: Path) -> Any:
    xarray.Dataset({"u": (["a", "b", "c"], ROWS)}).to_netcdf(folder / "a.nc", engine="h5netcdf")
    with xarray.open_dataset(folder / "a.nc", engine="h5netcdf") as file:
        return file["u"]


class Sliceable:
    shape, dtype = (10, 3), np.dtype("f4")

    def __getitem__(self, key: Any) -> Any:
        return np.zeros((10, 3), "f4")[key]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (in_memory, "array in memory. Open it by its path"),
        (open_dataset, "by its path"),
        (in_a_store, "by its path or URL"),
        (in_xarray, "HDF5. Open it by its path or URL"),
        (lambda _: Sliceable(), "save it to a file"),
    ],
    ids=["array", "h5py", "zarr", "xarray", "object"],
)
def test_data_that_can_not_be_opened_again(
    tmp_path: Path, target: Callable[[Path], Any], said: str
) -> None:
    opened = target(tmp_path)
    loader = ooc.open(opened).batches(4)
    with pytest.raises(DescriptionError, match=said) as caught:
        describe(loader)
    assert "`loader.dataset.source`" in str(caught.value)


def test_only_loaders_are_described() -> None:
    with pytest.raises(DescriptionError, match="must be a Loader; got ndarray"):
        describe(ROWS)  # type: ignore[arg-type]


# ---- imports while decoding ----


def test_only_allowed_modules_are_imported(tmp_path: Path) -> None:
    (tmp_path / "spoiled.py").write_text("raise SystemExit('imported')")
    description = describe(npy(tmp_path).map(double).batches(4))
    text = json.dumps(description)
    for wanted in ("spoiled:f", "os:system", "numpy:load", f"{__name__}.deeper:f"):
        other = json.loads(text.replace(f"{__name__}:double", wanted))
        for allow in ((), ("numpy.ma",), ("spoile",), ("o",), HERE):
            if wanted.startswith(__name__) and allow == HERE:
                continue
            with pytest.raises(DescriptionError, match="is not allowed"):
                from_json(other, allow=allow)
    with pytest.raises(DescriptionError, match="Allowed are none"):
        from_json(description)
    assert from_json(description, allow=HERE)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"{__name__}:os.system", "defined at posix:system"),
        (f"{__name__}:subprocess.run", "defined at subprocess:run"),
        (f"{__name__}:before", "gives another object"),
        (f"{__name__}:nothing", "has no 'nothing'"),
        (f"{__name__}:", "has no ''"),
        (f"{__name__}:HERE", "no import path"),
        (f"{__name__}.deeper:f", "can't be imported"),
        ("double", "is not allowed"),
    ],
    ids=str,
)
def test_an_allowed_module_provides_only_its_definitions(
    tmp_path: Path, path: Any, said: str
) -> None:
    description = json.loads(as_json(npy(tmp_path).map(double).batches(4)))
    _loader(description)["dataset"]["fn"] = {"import": path}
    with pytest.raises(DescriptionError, match=said):
        from_json(description, allow=HERE)


def test_a_package_is_allowed_with_all_its_modules(tmp_path: Path) -> None:
    loader = npy(tmp_path).map(np.ma.anom, spec=ROWS[0]).batches(4)
    for allow in (("numpy",), ("numpy.ma",), ("os", "numpy.ma.core")):
        assert_same_batches(loader, sent(loader, allow))
    for allow in (("num",), ("numpy.m",), ("numpy.ma.core.anom",)):
        with pytest.raises(DescriptionError, match=r"'numpy\.ma\.core' is not allowed"):
            sent(loader, allow)


def test_functions_of_the_package_need_no_permission(tmp_path: Path) -> None:
    rows = npy(tmp_path)
    loader = rows.map(ooc.stats(rows).standardize).batches(4)
    assert_same_batches(loader, sent(loader, ()))
    description = json.loads(as_json(loader))
    for path in ("oocdata:stats", "oocdata.tools.stats.result:Scaling.inverse"):
        _loader(description)["dataset"]["fn"] = {"import": path}
        with pytest.raises(DescriptionError, match="is not allowed"):
            from_json(description)


def test_allow_must_be_a_list() -> None:
    with pytest.raises(DescriptionError, match="must be a list of modules"):
        from_json({"format": FORMAT, "loader": None}, allow="os")


# ---- invalid descriptions ----


def _loader(description: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = description["loader"]
    return fields


def _view(description: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = description["loader"]["dataset"]
    return fields


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(format=1), "Another version"),
        (lambda d: d.update(more=2), "what `describe` returns"),
        (lambda d: d.update(loader=5), "it must be a Loader; got 5"),
        (lambda d: d.update(loader={"class": "oocdata.order.order:Shuffle"}), "must be a Loader"),
        (lambda d: _loader(d).update(workers_of_the_world=2), "argument 'workers_of"),
        (lambda d: _loader(d).pop("seed"), "argument: 'seed'"),
        (lambda d: _loader(d).pop("order"), "order"),
        (lambda d: _loader(d).update(order={}), "must have a class"),
        (lambda d: _loader(d).update(order={"range": [0, 1, 0]}), "must not be zero"),
        (lambda d: _loader(d).update(order={"range": [0, 1, "1"]}), "loader.order"),
        (lambda d: _loader(d).update(order={"beside": 0}), "out of range"),
        (lambda d: _loader(d).update(order={"import": "oocdata.cli:main"}), "is not allowed"),
        (lambda d: _loader(d).update(order={"class": "os:x"}), "is not allowed"),
        (
            lambda d: _loader(d).update(
                order={"class": "oocdata.order.block:BlockShuffle", "blocks": 0, "blocks_mixed": 1}
            ),
            "`blocks` must be",
        ),
        (lambda d: _loader(d).update(dataset={"class": "os:stat"}), "not allowed"),
        (lambda d: _view(d).pop("axes"), "axes"),
        (lambda d: _view(d).update(axes=[3]), "axes|axis"),
        (lambda d: _view(d).update(axes=["0"]), "axes|axis"),
        (lambda d: _view(d).update(rows={"range": [0, 61, 1]}), "array"),
        (lambda d: _view(d).update(rows={"range": [-1, 5, 1]}), "array"),
        (
            lambda d: _view(d).update(rows={"int64": encode_integers(np.array([3, 99, 4]))}),
            "array",
        ),
        (lambda d: _view(d)["cuts"].__setitem__(0, {"range": [0, 120, 2]}), "within the array"),
        (lambda d: _view(d)["cuts"].__setitem__(1, {"range": [0, 4, 1]}), "within the array"),
    ],
)
def test_invalid_descriptions(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], said: str
) -> None:
    description = json.loads(as_json(npy(tmp_path).batches(4)))
    change(description)
    with pytest.raises(OocdataError, match=said):
        from_json(description)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(part, (*path, name))


JUNK = st.recursive(
    st.sampled_from([None, True, -1, 0, 7, 2**70, 1.5, "", "x", "shuffle", "view"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["range", "slice", "dtype", "int64", "array", "dict", "float", "import", "class"]
            )
            | st.text(max_size=3),
            inner,
            max_size=2,
        )
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def descriptions(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return descriptions of loaders of one file of each format."""
    folder = tmp_path_factory.mktemp("described")
    made = [npy(folder), hdf5(folder, chunks=(7, 3, 5), compression="gzip"), zarr_array(folder)]
    return [as_json(v.next_frame(episodes=[20, 40])[[3, 1]].batches(4)) for v in made]


@settings(max_examples=100)
@given(st.data())
def test_any_input_gives_a_loader_or_a_clear_error(
    descriptions: list[str], data: st.DataObject
) -> None:
    description = json.loads(data.draw(st.sampled_from(descriptions)))
    *way, last = data.draw(st.sampled_from([path for path in _paths(description) if path]))
    holder = description
    for name in way:
        holder = holder[name]
    if data.draw(st.booleans()) and isinstance(holder, dict):
        holder[data.draw(st.text(max_size=4))] = data.draw(JUNK)
    else:
        holder[last] = data.draw(JUNK)
    try:
        found = from_json(description)
    except OocdataError:
        return
    assert isinstance(found, ooc.Loader)


def test_deep_nesting_is_a_clear_error() -> None:
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(DescriptionError, match="nested"):
        from_json({"format": FORMAT, "loader": nested})
    while nested:  # or freeing it would recurse as deep
        nested = nested[0]


# ---- files ----


def test_a_copy_of_a_file_is_the_same_data(tmp_path: Path) -> None:
    loader = npy(tmp_path).batches(4)
    description = describe(loader)
    (tmp_path / "b.npy").write_bytes((tmp_path / "a.npy").read_bytes())
    os.replace(tmp_path / "b.npy", tmp_path / "a.npy")
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    assert_array_equal(from_json(description).batch(0), ROWS[:4])


def test_a_file_that_changed_since_it_was_opened_is_not_described(tmp_path: Path) -> None:
    loader = npy(tmp_path).batches(4)
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    with pytest.raises(SourceError, match="has changed"):
        describe(loader)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (ROWS[:50], r"shape` was \[60, 3, 5\], and is \[50, 3, 5\]"),
        (ROWS.reshape(60, 5, 3), "shape` was"),
        (ROWS.view("<i4"), "dtype` was <f4, and is <i4"),
        (ROWS + 1, "content` was #"),
    ],
    ids=["length", "shape", "dtype", "numbers"],
)
@pytest.mark.parametrize("make", ["npy", "hdf5", "zarr"])
def test_other_data_in_a_file_are_an_error(
    tmp_path: Path, make: str, other: NDArray[Any], said: str
) -> None:
    def made(array: NDArray[Any]) -> ooc.View:
        if make == "npy":
            np.save(tmp_path / "a.npy", array)
            return ooc.open(tmp_path / "a.npy")
        if make == "hdf5":
            return hdf5(tmp_path, array=array, chunks=(7, *array.shape[1:]), compression="gzip")
        return zarr_array(tmp_path, array=array, overwrite=True)

    description = describe(made(ROWS).batches(4))
    made(other)
    with pytest.raises(DescriptionError, match=said):
        from_json(description)


@pytest.mark.parametrize("make", [npy, hdf5, zarr_array])
def test_a_file_that_is_not_there(tmp_path: Path, make: Callable[[Path], ooc.View]) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    description = describe(make(folder).batches(4))
    folder.rename(tmp_path / "other")
    with pytest.raises(MissingFileError) as caught:
        from_json(description)
    assert str(folder) in str(caught.value)


# ---- objects for worker processes ----


def test_leaves_are_collected_in_a_list() -> None:
    table = np.arange(3.0)
    source = RecordingSource(ROWS)
    view = ooc.View.of(source)
    loader = ooc.zip(view, view.map(lambda x: x + table[0]))[[5, 3, 1]].batches(2)
    objects: list[Any] = []
    text = as_json(loader, objects=objects)
    assert len(text) < 1200
    assert [value for value in objects if value is source] == [source] * 2
    again = from_json(text, objects=objects)
    assert again.dataset.sources()[0] is source
    assert_same_batches(loader, again)


def test_nothing_is_read_for_worker_processes() -> None:
    source = RecordingSource(ROWS)
    as_json(ooc.View.of(source).batches(2), objects=[])
    assert source.reads == []
