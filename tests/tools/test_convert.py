"""Test `convert` between all formats, with any chunks: bits and metadata stay the same."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import oocdata as ooc
from oocdata.engines.cache import cache as chunk_cache
from oocdata.errors import ArgumentError, DamagedChunkError, MissingKeyError
from oocdata.memory import DEFAULT_MEMORY, lowered_limit
from oocdata.tools import convert as convert_execution
from oocdata.tools import passes
from oocdata.tools.convert import convert
from oocdata.tools.convert.metadata import target_for
from oocdata.tools.convert.planning import plan_of

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

SUFFIXES = [".npy", ".h5", ".zarr"]


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> NDArray[Any]:
    """Return an array of random bits, which include NaN of every kind."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(nbytes), dtype).reshape(shape)


def store(path: Path, values: NDArray[Any], chunks: tuple[int, ...] | None = None) -> None:
    """Write an array with other libraries."""
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            options = {"compression": "gzip", "shuffle": True} if chunks else {}
            file.create_dataset("g/u", data=values, chunks=chunks, **options)
    else:
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": f"{path}/"},
            "store_data_equal_to_fill_value": True,
            "metadata": {
                "shape": list(values.shape),
                "data_type": str(values.dtype),
                "chunk_grid": {
                    "name": "regular",
                    "configuration": {"chunk_shape": list(chunks or values.shape)},
                },
                "codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "zstd", "configuration": {"level": 1}},
                ],
            },
        }
        tensorstore.open(spec, create=True).result()[...].write(values).result()


def load(path: Path, key: str | None = None) -> NDArray[Any]:
    """Read an array with other libraries."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return file[key or "/data"][()]
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/{key or ''}"}}
    return np.asarray(tensorstore.open(spec, read=True).result().read().result())


@pytest.mark.parametrize(("source", "target"), list(product(SUFFIXES, repeat=2)))
def test_nine_directions(tmp_path: Path, source: str, target: str) -> None:
    values = numbers((40, 4, 5))
    store(tmp_path / f"a{source}", values, None if source == ".npy" else (40, 2, 3))
    before = (tmp_path / f"a{source}").stat().st_mtime_ns
    done = convert(tmp_path / f"a{source}", tmp_path / f"b{target}", verify=True)
    assert done.verified
    key = "/g/u" if (source, target) == (".h5", ".h5") else None
    assert load(tmp_path / f"b{target}", key).tobytes() == values.tobytes()
    assert sorted(os.listdir(tmp_path)) == [f"a{source}", f"b{target}"]
    assert (tmp_path / f"a{source}").stat().st_mtime_ns == before


def slices(length: int) -> st.SearchStrategy[slice]:
    ends = st.integers(0, length)
    steps = st.sampled_from([1, 1, 2, 3, -1, -2])
    return st.builds(lambda a, b, c: slice(*((min(a, b), max(a, b)) if c > 0 else (b, a)), c),
                     ends, ends, steps)  # fmt: skip


def lying(folder: Path, values: NDArray[Any], chunks: tuple[int, ...], source: str) -> ooc.View:
    """Write an array in one of many ways, and open it."""
    chunks = tuple(map(min, chunks, values.shape))
    if source == "fortran":
        np.save(folder / "a.npy", np.asfortranarray(values))
        return ooc.open(folder / "a.npy")
    if source == "plain":  # uncompressed chunks, each in a file
        zarr.create_array(folder / "a.zarr", data=values, chunks=chunks, compressors=None)
        return ooc.open(folder / "a.zarr")
    if source == "parts":
        for number, part in enumerate(np.array_split(values, 3)):
            store(folder / f"part{number}.h5", part, tuple(map(min, chunks, part.shape)))
        return ooc.open(f"{folder}/part*.h5")
    store(folder / f"a{source}", values, None if source == ".npy" else chunks)
    return ooc.open(folder / f"a{source}")


WHOLE = st.just(slice(None))
LENGTHS = st.tuples(st.integers(3, 60), st.integers(1, 6), st.integers(1, 6))


@settings(max_examples=80)
@given(
    shape=LENGTHS,
    chunks=LENGTHS,
    to_chunks=LENGTHS,
    rows=WHOLE | slices(60) | st.lists(st.integers(0, 59), min_size=1, max_size=60).map(np.array),
    cuts=st.tuples(*2 * [WHOLE | slices(6) | st.integers(0, 5)]),
    dtype=st.sampled_from(["i4", "f8"]),
    elements=st.integers(1, 400),
    target=st.sampled_from(SUFFIXES),
    source=st.sampled_from([*SUFFIXES, "fortran", "parts", "plain"]),
)
def test_any_view_to_any_chunks(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    to_chunks: tuple[int, ...],
    rows: Any,
    cuts: tuple[Any, ...],
    dtype: str,
    elements: int,
    target: str,
    source: str,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    values = numbers(shape, "int32")
    view = lying(folder, values, chunks, source)
    if not isinstance(rows, slice):
        rows = rows % shape[0]
    key = (slice(None), *(cut if isinstance(cut, slice) else cut % n
                          for cut, n in zip(cuts, shape[1:], strict=True)))  # fmt: skip
    wanted = values[rows][key].astype(dtype)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passes, "BLOCK_BYTES", elements * 8)
        options: Any = {} if target == ".npy" else {"chunks": to_chunks[: wanted.ndim]}
        chosen = view[rows][key].astype(dtype)
        done = convert(chosen, folder / f"b{target}", verify=True, **options)
    assert done.verified
    found = load(folder / f"b{target}", done.plan.target.key)
    assert (found.shape, found.tobytes()) == (wanted.shape, wanted.tobytes())


@pytest.mark.parametrize("source", [".h5", ".zarr"])
def test_chunks_that_span_all_rows(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oocdata.formats.hdf5.filtered import FilteredChunks
    from oocdata.formats.zarr.readers import ZarrReader

    values = numbers((3000, 16, 16), "float64")
    path = tmp_path / f"a{source}"
    store(path, values, (3000, 2, 2))
    decoded: list[Any] = []
    for reader in (FilteredChunks, ZarrReader):

        def counted(self: Any, places: Any, outs: Any, read: Any = reader.read_chunks) -> None:
            decoded.extend(map(tuple, places.tolist()))
            read(self, places, outs)

        monkeypatch.setattr(reader, "read_chunks", counted)
    view = ooc.open(path)
    with lowered_limit(16 << 20):
        plan = plan_of(view, str(tmp_path / "b.zarr"), codec="none")
        decoded.clear()
        chunk_cache.forget()
        done = convert_execution.carry_out(plan)
    assert (done.plan.decodes, len(decoded), len(set(decoded))) == (1, 64, 64)
    assert load(tmp_path / "b.zarr").tobytes() == values.tobytes()
    # Memory holds fewer chunks: they are decoded for each block of rows, as the plan says.
    with lowered_limit(2 << 20):
        plan = plan_of(view, str(tmp_path / "c.npy"))
        decoded.clear()
        chunk_cache.forget()
        done = convert_execution.carry_out(plan)
    assert "each is decoded about" in str(done)
    assert 20 < done.plan.decodes < len(decoded) / 64 + 1 < done.plan.decodes + 3
    assert np.load(tmp_path / "c.npy").tobytes() == values.tobytes()


def test_the_usual_codec_of_a_format(tmp_path: Path) -> None:
    np.save(tmp_path / "random.npy", numbers((400, 100), "uint8"))
    done = convert(tmp_path / "random.npy", tmp_path / "a.h5", verify=True)
    assert str(done.plan.target.codec) == "shuffle, gzip 1"
    assert done.stored_bytes < 1.2 * 40_000  # what it makes no smaller is stored as it is


# What goes along


@pytest.fixture
def netcdf(tmp_path: Path) -> Path:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    values = 280 + np.random.default_rng(0).standard_normal((40, 5, 6))
    values[3, 1, 1] = np.nan
    data = xarray.Dataset(
        {"t2m": (("time", "lat", "lon"), values, {"units": "K", "levels": [1, 2, 3]})}
    )
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    data.to_netcdf(
        tmp_path / "a.nc", engine="netcdf4",
        encoding={"t2m": {**packed, "zlib": True, "chunksizes": (40, 1, 2)}},
    )  # fmt: skip
    return tmp_path / "a.nc"


def test_netcdf_to_npy_says_what_is_lost(netcdf: Path) -> None:
    text = str(convert(netcdf, netcdf.parent / "b.npy", key="t2m"))
    assert "NOT carried" in text
    assert "scale_factor" in text
    assert "stay packed" in " ".join(text.split())


@pytest.mark.parametrize("rows", [slice(None), slice(None, None, -3), [7, 3, 3]], ids=str)
def test_packed_numbers_are_decoded_as_xarray_does(netcdf: Path, rows: Any) -> None:
    import xarray

    with xarray.open_dataset(netcdf) as data, xarray.open_dataset(netcdf) as same:
        view = ooc.open(data["t2m"])
        wanted = same["t2m"].values
        plan = plan_of(view[rows], str(netcdf.parent / "b.npy"))
        assert plan.view.dtype == wanted.dtype
        convert(view[rows][:, 1:, ::2], netcdf.parent / "b.npy", verify=True)
    found = np.load(netcdf.parent / "b.npy")
    assert np.array_equal(found, wanted[rows][:, 1:, ::2], equal_nan=True)


def test_a_float_fill_value_in_zarr_is_as_xarray_writes_it(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    values = np.array([[1.0, -999.0], [2.0, 3.0]])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = values
        file["u"].attrs["_FillValue"] = -999.0
        file["u"].attrs["nan"] = np.nan
        file["u"].dims[0].label, file["u"].dims[1].label = "y", "x"
    convert(tmp_path / "a.h5", tmp_path / "b.zarr", to_key="u")
    with xarray.open_zarr(tmp_path / "b.zarr", consolidated=False) as got:
        assert np.array_equal(
            got.u.values, np.where(values == -999, np.nan, values), equal_nan=True
        )


# What is refused


def test_the_source_is_never_the_destination(tmp_path: Path) -> None:
    store(tmp_path / "a.zarr", numbers((4, 2)))
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", numbers((4, 2)))
    (tmp_path / "link.npy").symlink_to("a.npy")
    (tmp_path / "hard.npy").hardlink_to(tmp_path / "a.npy")
    for source, target in [
        ("a.npy", "a.npy"), ("a.npy", "link.npy"), ("a.npy", "hard.npy"), ("a.zarr", "a.zarr"),
        ("a.zarr", "a.zarr/b.zarr"),
    ]:  # fmt: skip
        with pytest.raises(ArgumentError, match="apart"):
            convert(tmp_path / source, tmp_path / target, overwrite=True)
    both = ooc.open([tmp_path / "b.npy", tmp_path / "a.npy"]).astype("f8")
    with pytest.raises(ArgumentError, match="must be apart"):
        convert(both, tmp_path / "a.npy", overwrite=True)
    assert len(np.load(tmp_path / "a.npy")) == 4


def test_what_is_made_of_an_array_is_not_converted(tmp_path: Path) -> None:
    view = ooc.open(numbers((10, 4)))
    for source in (view.map(np.abs), view.next_frame()):
        with pytest.raises(ArgumentError, match=r"oocdata\.create"):
            convert(source, tmp_path / "a.npy")


def test_a_missing_key(tmp_path: Path) -> None:
    store(tmp_path / "a.h5", numbers((4, 2)))
    with pytest.raises(MissingKeyError, match="/g/u"):
        convert(tmp_path / "a.h5", tmp_path / "b.npy", key="/nowhere")


# What verifying finds


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_flipped_bit_is_found(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.zeros((100, 8), "f4")
    np.save(tmp_path / "a.npy", values)
    read = convert_execution.read_rows

    def damaged(view: ooc.View, rows: range) -> NDArray[Any]:
        values = read(view, rows)
        values[7] = -0.0  # equal, but not the same bits
        return values

    monkeypatch.setattr(convert_execution, "read_rows", damaged)
    with pytest.raises(DamagedChunkError, match="row 7") as caught:
        convert(tmp_path / "a.npy", tmp_path / f"b{suffix}", verify=True)
    assert caught.value.rows == (7,)
    assert os.listdir(tmp_path) == ["a.npy"]


def test_a_damaged_source_is_an_error_with_its_rows(tmp_path: Path) -> None:
    store(tmp_path / "a.h5", numbers((100, 64)), (10, 64))
    with h5py.File(tmp_path / "a.h5") as file:
        where = file["g/u"].id.get_chunk_info(4)
    with open(tmp_path / "a.h5", "r+b") as file:
        file.seek(where.byte_offset)
        file.write(b"\xff" * 64)
    with pytest.raises(DamagedChunkError) as caught:
        convert(tmp_path / "a.h5", tmp_path / "b.npy")
    assert caught.value.rows == tuple(range(40, 50))
    assert os.listdir(tmp_path) == ["a.h5"]


@pytest.mark.parametrize("key", [np.s_[:, 5:], np.s_[:, :, 3:], np.s_[:, ::2], np.s_[:, 3]])
def test_cuts_of_rows_whose_bytes_lie_far_apart(tmp_path: Path, key: Any) -> None:
    values = np.arange(120 * 40 * 60, dtype="i8").reshape(120, 40, 60)
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    for number, (name, axis) in enumerate([("a", 1), ("a", 2), ("f", 0), ("f", 1)]):
        view = ooc.open(tmp_path / f"{name}.npy", axis=axis)[key]
        with lowered_limit(1 << 20):
            convert(view, tmp_path / f"{number}.npy")
        expected = np.moveaxis(values, axis, 0)[key]
        assert np.array_equal(np.load(tmp_path / f"{number}.npy"), expected)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_arrays_without_elements(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "a.npy", np.zeros(shape, "f4"))
    convert(tmp_path / "a.npy", tmp_path / f"b{suffix}", verify=True)
    assert load(tmp_path / f"b{suffix}").shape == shape


def test_attributes_that_hdf5_can_not_hold_are_named(tmp_path: Path) -> None:
    attributes = {
        "ragged": [[1], [2, 3]], "zero": "a\0b", "long": list(range(20_000)),
        "mixed": [1, "a"], "good": [1, 2], "text": "x" * 100_000, "words": ["a", "b"],
    }  # fmt: skip
    zarr.create_array(tmp_path / "a.zarr", shape=(3,), dtype="i4", attributes=attributes)[:] = 1
    done = convert(tmp_path / "a.zarr", tmp_path / "b.h5")
    assert sorted(done.plan.target.lost) == ["long", "mixed", "ragged", "zero"]
    with h5py.File(tmp_path / "b.h5") as file:
        assert sorted(file["data"].attrs) == ["good", "text", "words"]


def test_names_of_axes_of_one(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = np.zeros((5, 4, 1))
        for axis, name in enumerate("abc"):
            file["u"].dims[axis].label = name
    convert(ooc.open(tmp_path / "a.h5", axis=2), tmp_path / "b.zarr")
    array = zarr.open_array(tmp_path / "b.zarr", mode="r")
    assert array.metadata.dimension_names == ("c", "a", "b")


@pytest.mark.parametrize("chunks", [None, (1, 6, 8), (5, 6, 8)])
def test_names_of_axes_of_which_some_places_are_left_out(
    tmp_path: Path, chunks: tuple[int, ...] | None
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("u", data=np.zeros((5, 6, 8)), chunks=chunks)
        for axis, name in enumerate("abc"):
            dataset.dims[axis].label = name
    view = ooc.open(tmp_path / "a.h5")[:, :, ::7]
    assert target_for(view, "zarr").dimension_names == ("a", "b", "c")
    view = ooc.open(tmp_path / "a.h5", axis=1)[:, ::-1, ::7]
    assert target_for(view, "zarr").dimension_names == ("b", "a", "c")


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((200_000, 4096), {"chunks": (200_000, 8)}, "200,000 whole rows twice, 1.5 GiB"),
        ((3, 64, 512, 1024, 64), {}, "1 whole row twice, 4.0 GiB"),
    ],
)
def test_rows_that_memory_does_not_hold_are_refused(
    tmp_path: Path, shape: tuple[int, ...], options: Any, words: str
) -> None:
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", "u1", shape)  # sparse
    view = ooc.open(tmp_path / "a.npy")
    message = f"memory must hold {words}.*; its limit is 64.0 MiB"
    with lowered_limit(64 << 20), pytest.raises(ArgumentError, match=message):
        plan_of(view, str(tmp_path / "b.zarr"), **options)
    ooc.set_memory(5 << 30)
    try:
        plan = plan_of(view, str(tmp_path / "b.zarr"), **options)
    finally:
        ooc.set_memory(DEFAULT_MEMORY)
    assert plan.memory_bytes > 5 << 30


def test_a_view_of_chunks_that_span_the_rows_is_planned_by_the_chunks(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", (6000, 64, 64), "i2", chunks=(6000, 4, 4), compression="gzip",
                            fillvalue=1)  # fmt: skip
    whole = ooc.open(tmp_path / "a.h5", missing="fill")
    stated = []
    for view in (whole, whole[:, :32], whole[::2, 3:], whole[:, 5]):
        with lowered_limit(2 << 20):
            plan = plan_of(view, str(tmp_path / "b.npy"))
        assert plan.decodes > 2
        stated.append(plan.memory_bytes)
    assert max(stated) < 112 << 20


def test_packed_chunks_that_span_the_rows_are_planned_by_the_chunks(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    netcdf4 = pytest.importorskip("netCDF4")
    with netcdf4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, length in zip("tyx", (3000, 32, 32), strict=True):
            file.createDimension(name, length)
        made = file.createVariable("v", "i2", tuple("tyx"), zlib=True, chunksizes=(3000, 4, 4))
        made.scale_factor = 0.5
        made[:] = np.arange(32)
    with xarray.open_dataset(tmp_path / "a.nc") as data, lowered_limit(2 << 20):
        plan = plan_of(ooc.open(data["v"]), str(tmp_path / "b.npy"))
    assert plan.decodes > 2


GROWN = """
import sys, threading
import numpy as np
import oocdata as ooc
from oocdata.tools.convert.planning import plan_of
from oocdata.tools.convert import carry_out

def taken():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))

def watch():
    while not done.wait(0.002):
        peak[0] = max(peak[0], taken())

ooc.set_memory(4 << 20)
view = ooc.open(sys.argv[1])
order = np.random.default_rng(0).permutation(len(view))
for chosen in (view[::2], view[order[::2]], view[:, :64]):
    plan = plan_of(chosen, sys.argv[2], overwrite=True)
    done, peak, before = threading.Event(), [0], taken()
    watching = threading.Thread(target=watch)
    watching.start()
    carry_out(plan)
    done.set()
    watching.join()
    print(peak[0] - before, plan.memory_bytes, flush=True)
"""


@pytest.mark.thorough
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells the memory so")
def test_the_memory_is_no_more_than_the_plan_says(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("u", (2000, 128, 128), "f4", chunks=(8, 128, 128),
                                   compression="gzip", compression_opts=1)  # fmt: skip
        for first in range(0, 2000, 400):
            made[first : first + 400] = np.full((400, 128, 128), first, "f4")
    command = [sys.executable, "-c", GROWN, str(tmp_path / "a.h5"), str(tmp_path / "b.zarr")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in said.splitlines()]
    assert len(pairs) == 3
    assert all(grown < stated for grown, stated in pairs), pairs


# Several sample axes, and what the new kernel reads


@pytest.mark.parametrize("axis", [(0, 1), (1, 0), (0, 3), (2, 0), (3, 1, 0)], ids=str)
@pytest.mark.parametrize("source", [*SUFFIXES, "fortran"])
def test_several_sample_axes(tmp_path: Path, axis: tuple[int, ...], source: str) -> None:
    values = numbers((5, 6, 7, 4), "int16")
    path = tmp_path / ("a.npy" if source == "fortran" else f"a{source}")
    if source == "fortran":
        np.save(path, np.asfortranarray(values))
    else:
        store(path, values, None if source == ".npy" else (2, 3, 7, 2))
    view = ooc.open(path, axis=axis)
    rest = [at for at in range(4) if at not in axis]
    wanted = values.transpose(*axis, *rest).reshape(-1, *(values.shape[at] for at in rest))
    for rows in (slice(None), slice(3, 17), slice(None, None, -2), np.array([9, 0, 9, 4])):
        done = convert(view[rows], tmp_path / "b.npy", verify=True, overwrite=True)
        assert done.verified
        assert (np.load(tmp_path / "b.npy") == wanted[rows]).all()


def test_elements_in_another_order_of_axes(tmp_path: Path) -> None:
    values = numbers((20, 3, 4, 5), "int16")
    store(tmp_path / "a.h5", values, (7, 2, 3, 5))
    view = ooc.open(tmp_path / "a.h5").transpose(2, 0, 1)[:, ::-2, 1:]
    convert(view, tmp_path / "b.zarr", chunks=3, verify=True)
    assert (load(tmp_path / "b.zarr") == values.transpose(0, 3, 1, 2)[:, ::-2, 1:]).all()


def test_verifying_decodes_the_source_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source must be read again, or damage between file and memory stays unseen."""
    from oocdata.formats.hdf5.filtered import FilteredChunks

    store(tmp_path / "a.h5", numbers((40, 64)), (10, 64))
    view = ooc.open(tmp_path / "a.h5")
    np.asarray(view)  # all of it is in the cache
    decoded: list[int] = []
    read = FilteredChunks.read_chunks

    def once_wrong(self: Any, places: Any, outs: Any) -> None:
        read(self, places, outs)
        decoded.extend(places[:, 0].tolist())
        if len(decoded) == len(set(decoded)) and 2 in places[:, 0]:
            outs[places[:, 0].tolist().index(2)][3] = 0

    convert(view, tmp_path / "b.npy")
    assert decoded == []
    monkeypatch.setattr(FilteredChunks, "read_chunks", once_wrong)
    chunk_cache.forget()
    with pytest.raises(DamagedChunkError) as caught:
        convert(view, tmp_path / "c.npy", verify=True)
    assert caught.value.rows == (23,)
    assert sorted(decoded) == [0, 0, 1, 1, 2, 2, 3, 3]
