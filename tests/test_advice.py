"""Each rule of advice, on figures for which it applies or not, and the origin of the figures."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from counting import counted
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.advice import Advice, Measured, Reading, advise, as_typed, reading_of, size
from oocdata.cost import amplification
from oocdata.engines.source import Storage
from oocdata.memory import DEFAULT_MEMORY, lowered_limit, set_memory

HDF5 = Storage("HDF5", "sim.h5", "/u", "chunks of (100, 64)", "gzip 4", chunks=(100, 64),
               opened={"target": "sim.h5", "key": "/u"})  # fmt: skip
CHUNKED = Reading(
    storage=HDF5, order="block shuffle", row_bytes=256, block_length=100,
    full_amplification=30.0,
)  # fmt: skip
PLAIN = Reading(storage=replace(HDF5, chunks=None, codec="none"))


def told(reading: Reading, **measured: Any) -> dict[str, Advice]:
    return {one.kind: one for one in advise(reading, Measured(**measured))}


def test_sizes_and_paths_in_words() -> None:
    assert [size(n) for n in (1, 1536, 120_000_000)] == ["1 byte", "1.5 KiB", "114.4 MiB"]
    # A leading dash would be an option.
    assert [as_typed(f"{os.getcwd()}/ds.npy"), as_typed("-x.npy")] == ["ds.npy", "./-x.npy"]


def test_nothing_is_advised_where_nothing_is_wrong() -> None:
    assert advise(CHUNKED) == advise(PLAIN) == ()


@pytest.mark.parametrize(
    ("full", "kinds"), [(1.2, []), (2.0, ["order"]), (9.0, ["order", "chunks"])]
)
def test_a_full_shuffle_of_chunks(full: float, kinds: list[str]) -> None:
    found = told(replace(CHUNKED, order="full shuffle", full_amplification=full))
    assert list(found) == kinds
    if "chunks" in kinds:
        assert "decodes 9 bytes for each byte used" in found["order"].text
        assert "With 32 rows a full shuffle would decode about 3 bytes" in found["chunks"].text
        command = "oocdata convert sim.h5 sim-new.h5 --key /u --chunks 32"
        assert found["chunks"].command == command


def test_a_block_shuffle_that_decodes_as_often_is_not_advised(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        rows = np.zeros((1600, 3000))
        file.create_dataset("x", data=rows, chunks=(16, 3000), compression="gzip")
    view = ooc.open(tmp_path / "x.h5", "x")
    with lowered_limit(4 << 20):
        chosen = view.batches(32, shuffle=True).explain()
    assert chosen.order == "full shuffle"
    assert chosen.amplification > 8
    (order,) = (advice.text for advice in chosen.advice if advice.kind == "order")
    assert order.endswith(
        "because only 2.0 MiB of decoded chunks are cached: ooc.set_memory sets the limit."
    )
    assert "block shuffle" not in order


@pytest.mark.parametrize(("block", "slow"), [(1000.0, True), (120.0, False)])
def test_measured_shuffles_are_compared(block: float, slow: bool) -> None:
    rates = {"full shuffle": 100.0, "block shuffle": block}
    found = told(CHUNKED, rates=rates)
    assert ("order" in found) is slow
    if slow:
        assert "10.0 times as fast" in found["order"].text


def test_patches_whose_chunks_all_fit_need_no_larger_cache(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "cells.h5", "w") as file:
        array = np.zeros((24, 256, 256), "u2")
        file.create_dataset("u", data=array, chunks=(1, 64, 64), compression="gzip")
    patches = ooc.open(tmp_path / "cells.h5", "u").patches((64, 64), per_row=8)
    reading = reading_of(patches.batches(16, shuffle=True))
    assert reading.amplification > 1.5
    assert advise(reading) == ()


def test_channels_of_several_arrays_are_not_rows_cut_by_chunks(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in "uv":
            file.create_dataset(name, data=np.ones((64, 8, 32)), chunks=(16, 8, 32), compression=1)
    fields = [
        ooc.open(tmp_path / "a.h5", name)[:, channel] for name, channel in (("u", 3), ("v", 5))
    ]
    for view in (fields[0], ooc.stack(fields)):
        assert reading_of(view.batches(8, shuffle=True)).chunks_per_row == 1


@pytest.mark.parametrize(("rate", "bound"), [(90.0, True), (20.0, False)])
def test_a_decoder_that_is_the_limit(rate: float, bound: bool) -> None:
    found = told(CHUNKED, rates={"sequential": rate}, decoder=100.0)
    assert ("codec" in found) is bound
    if bound:
        assert "90% of what it allows is used" in found["codec"].text
        assert (found["codec"].command or "").endswith("sim-new.h5 --key /u --codec none")


def test_a_slow_function_comes_first() -> None:
    assert "workers=2" in advise(CHUNKED, Measured(map_share=0.9))[0].text
    several = advise(replace(CHUNKED, workers=2), Measured(map_share=0.9))
    assert "90% of a batch's time" in several[0].text
    assert "more workers" in several[0].text


def test_rows_whose_bytes_are_not_contiguous(tmp_path: Path) -> None:
    rows = np.zeros((600, 8, 8), "f4")
    np.save(tmp_path / "f.npy", np.asfortranarray(rows))
    np.save(tmp_path / "c.npy", rows)
    view = ooc.open(tmp_path / "f.npy")
    (one,) = advise(reading_of(view.batches(32)))
    assert one.kind == "layout"
    assert "256 bytes are spread over" in one.text
    assert "Rows along axis=2 lie in one piece" in one.text
    assert (one.command or "").endswith("f.npy f-new.npy")
    (one,) = advise(reading_of(ooc.open(tmp_path / "c.npy", axis=1).batches(3)))
    assert (one.command or "").endswith("c-new.npy --axis 1")
    plain = ooc.open(tmp_path / "c.npy")
    for whole in (
        ooc.open(tmp_path / "f.npy", axis=2), plain, plain[:, 2:5], plain.windows(4, 2),
        plain.patches((3, 3), per_row=2), ooc.open(tmp_path / "c.npy", axis=(0, 1)),
    ):  # fmt: skip
        assert advise(reading_of(whole.batches(8))) == ()


FIELD = np.random.default_rng(0).normal(0, 1, (12, 40, 6)).round(1).astype("f4")


def npy(**arguments: Any) -> tuple[str, dict[str, Any]]:
    np.save("ds.npy", FIELD)
    return "ds.npy", arguments


def raw() -> tuple[str, dict[str, Any]]:
    Path("my field.bin").write_bytes(bytes(16) + FIELD.astype(">f4").tobytes())
    return "my field.bin", {"axis": (0, 1), "dtype": ">f4", "shape": (-1, 40, 6), "offset": 16}


def missing() -> tuple[str, dict[str, Any]]:
    with h5py.File("sim.h5", "w") as file:
        data = file.create_dataset("flow/u", (12, 40, 6), "f4", chunks=(4, 40, 6))
        data[:4] = FIELD[:4]
    return "sim.h5", {"missing": "fill"}


def external() -> tuple[str, dict[str, Any]]:
    with h5py.File("beside.h5", "w") as file:
        file["u"] = FIELD
    with h5py.File("sim.h5", "w") as file:
        layout = h5py.VirtualLayout(FIELD.shape, FIELD.dtype)
        layout[:] = h5py.VirtualSource("beside.h5", "u", FIELD.shape)
        file.create_virtual_dataset("u", layout)
    return "sim.h5", {"external": True}


def last_axis_of_zarr() -> tuple[str, dict[str, Any]]:
    zarr.create_array("run.zarr", data=FIELD, chunks=(4, 4, 2))
    return "run.zarr", {"axis": -1}


TYPED = """
import json, os, sys
from oocdata.cli import main

for folder, words in json.loads(sys.argv[1]):
    os.chdir(folder)
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


def test_a_command_can_be_typed_and_writes_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, list[str]]] = []
    expected = []
    for make in (npy, lambda: npy(axis=1), raw, missing, external, last_axis_of_zarr):
        folder = tmp_path / str(len(commands))
        folder.mkdir()
        monkeypatch.chdir(folder)
        path, arguments = make()
        view = ooc.open(path, **arguments)
        command = reading_of(view.next_frame().map(lambda x, y: x).batches(4)).convert(chunks=3)
        assert command is not None
        program, *words = shlex.split(command)
        assert program == "oocdata"
        commands.append((str(folder), words))
        expected.append(np.asarray(view))
    # In a new process, as typed by a user, because this one has the files open.
    typed = [sys.executable, "-c", TYPED, json.dumps(commands)]
    done = subprocess.run(typed, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for (where, words), rows in zip(commands, expected, strict=True):
        assert_array_equal(np.asarray(ooc.open(Path(where, words[2]))).reshape(rows.shape), rows)


def test_no_command_where_none_opens_the_array(tmp_path: Path) -> None:
    for name in ("part1.npy", "part2.npy"):
        np.save(tmp_path / name, FIELD)
    one, parts = ooc.open(tmp_path / "part1.npy"), ooc.open(tmp_path / "part*.npy")
    for dataset in (parts, ooc.open(FIELD), ooc.zip(one, one)):
        assert reading_of(dataset.batches(4)).convert() is None


@pytest.mark.parametrize("chunk", [16, 100])
@pytest.mark.parametrize("made", [lambda v: v, lambda v: v.astype("f8")[:, ::2]])
def test_the_expected_cost_of_a_full_shuffle(chunk: int, made: Any) -> None:
    view, _ = counted(np.zeros((40_000, 100), "f4"), chunk, 100)
    set_memory(8 << 20)
    try:
        loader = made(view).batches(32, shuffle="global")
        assert reading_of(loader).full_amplification == pytest.approx(
            amplification(loader), rel=0.15
        )
    finally:
        set_memory(DEFAULT_MEMORY)
