"""Fingerprints are equal for the same batches and differ for others, whatever the names."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf
from other_loaders import OTHERS, rows_of, usual
from PIL import Image
from recording import RecordingSource
from stored_layouts import KINDS, write_kinds

import oocdata as ooc
from oocdata.describe import check_fingerprint, differences, fingerprint
from oocdata.describe.fingerprints import dataset_fingerprint
from oocdata.errors import RestoreError, SourceError

SPEC = ooc.ArraySpec((8,), np.dtype("f8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    np.save(folder / "rows.npy", np.arange(660 * 8.0).reshape(660, 8))
    return folder


def parts(loader: ooc.Loader) -> dict[str, str]:
    found: dict[str, str] = json.loads(fingerprint(loader))
    return found


@pytest.mark.parametrize(("make", "said"), OTHERS)
def test_another_loader_is_refused(
    folder: Path, make: Callable[[Path], ooc.Loader], said: str
) -> None:
    with pytest.raises(RestoreError) as caught:
        check_fingerprint(fingerprint(usual(folder)), fingerprint(make(folder)), " (in the file)")
    assert said in str(caught.value)
    assert " (in the file)" in str(caught.value)


def test_an_equal_loader_is_accepted(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "rows.npy", tmp_path)
    os.utime(tmp_path / "rows.npy", (1, 1))
    one = fingerprint(usual(folder))
    assert fingerprint(usual(tmp_path)) == one
    for same in (usual(folder, workers=2), usual(folder).shard(2, 1)):
        check_fingerprint(one, fingerprint(same))


def test_other_fields_that_must_be_equal(folder: Path) -> None:
    one, other = (fingerprint(usual(folder), steps=steps) for steps in ("20", "30"))
    with pytest.raises(RestoreError, match="`steps` was 20, and is 30"):
        check_fingerprint(one, other)


@pytest.mark.parametrize("text", ["", "null", "[]", "7", "{"])
def test_invalid_fingerprints(folder: Path, text: str) -> None:
    with pytest.raises(RestoreError, match="another version"):
        check_fingerprint(text, fingerprint(usual(folder)))


# ---- data ----


def test_the_selected_rows_matter(folder: Path) -> None:
    one, two = (parts(rows_of(folder)[:, part].batches(10)) for part in (slice(3), slice(1, 4)))
    cuts = [["0:660:1", columns] for columns in ("0:3:1", "1:4:1")]
    assert differences(one, two) == [f"`dataset.cuts` was {cuts[0]}, and is {cuts[1]}"]


@pytest.mark.parametrize("place", [0, 1, 250, 659])
def test_arrays_in_memory(place: int) -> None:
    array = np.arange(660 * 4.0).reshape(660, 4)
    other = array.copy()
    other[place:] += 1
    one, copy, two = (parts(ooc.open(each).batches(10)) for each in (array, array.copy(), other))
    assert one == copy
    assert differences(one, two) == ["`dataset.source.content` differs"]


@pytest.mark.parametrize("kind", [*KINDS, "parts"])
def test_files(tmp_path: Path, kind: str) -> None:
    array = np.random.default_rng(0).integers(0, 9, (200, 6)).astype("f4")
    other = array.copy()
    other[90:] = array[90:][::-1]
    for name, values in (("one", array), ("two", other)):
        (tmp_path / name).mkdir()
        write_kinds(tmp_path / name, values, each=20, shard=40)
        for number, part in enumerate(np.split(values, 20)):
            np.save(tmp_path / name / f"part{number}.npy", part)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    file, key = KINDS.get(kind, ("part*.npy", None))
    one, two, copy = (
        parts(ooc.open(tmp_path / name / file, key).batches(10)) for name in ("one", "two", "copy")
    )
    assert copy == one
    assert differences(one, two) == ["`dataset.source.content` differs"]


def test_the_same_data_in_other_chunks_or_formats(tmp_path: Path) -> None:
    write_kinds(tmp_path, np.random.default_rng(0).random((200, 6)).astype("f4"), 20, 40)
    views = [ooc.open(tmp_path / file, key) for file, key in KINDS.values()]
    assert len({fingerprint(view.batches(10)) for view in views}) == 1


def test_few_chunks_are_decoded(tmp_path: Path) -> None:
    source = RecordingSource(np.zeros((100_000, 9)), chunks=100)
    fingerprint(ooc.View.of(source).batches(10))
    assert len(source.reads) <= 16


def _pictures(path: Path) -> ooc.View:
    for number in range(20):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(path / f"{number}.png")
    (path / "19.png").write_bytes((path / "19.png").read_bytes()[:40])
    return ooc.open(path / "*.png")


def _damage(path: Path, stored: bytes) -> None:
    data = path.read_bytes()
    assert data.count(stored) == 1
    path.write_bytes(data.replace(stored, bytes(len(stored))))


def _records(path: Path) -> ooc.View:
    with tf.io.TFRecordWriter(str(path / "a.tfrecord")) as writer:
        for number in range(20):
            writer.write(b"record %02d" % number)
    _damage(path / "a.tfrecord", b"record 19")
    return ooc.open(path / "a.tfrecord")


def _chunks(path: Path, name: str, values: np.ndarray) -> ooc.View:
    with h5py.File(path / "a.h5", "w") as file:
        stored = file.create_dataset(name, data=values, chunks=(len(values) // 20,), compression=1)
        chunk = stored.id.read_direct_chunk((len(values) - len(values) // 20,))[1]
    _damage(path / "a.h5", chunk)
    return ooc.open(path / "a.h5", name)


def _chunked(path: Path) -> ooc.View:
    return _chunks(path, "x", np.arange(20))


def _ragged(path: Path) -> ooc.View:
    return ooc.ragged(_chunks(path, "values", np.arange(60)), lengths=[3] * 20)


@pytest.mark.parametrize("make", [_pictures, _records, _chunked, _ragged])
def test_damaged_rows_that_are_left_out(tmp_path: Path, make: Callable[[Path], ooc.View]) -> None:
    view = make(tmp_path)
    with pytest.raises(SourceError):
        view[19]
    readable = view.filter(np.arange(20) < 19)
    assert fingerprint(readable.batches(5)) == fingerprint(readable.batches(5))
    assert sum(len(batch) for batch in readable.batches(5)) == 19
    _ = readable.batches(5).to_tf()


# ---- functions ----


def scaled(x: np.ndarray, factor: float = 1.0) -> np.ndarray:
    return x * factor


def adding(number: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: x + number


def defaulting(number: float) -> Callable[..., np.ndarray]:
    def inner(x: np.ndarray, by: float = number) -> np.ndarray:
        return x * by

    return inner


@dataclass(frozen=True)
class Shift:
    by: Any

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x + self.by


class Plain:
    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x + self.by

    def method(self, x: np.ndarray) -> np.ndarray:
        return x - self.by


def other_global(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of another module that uses a number of that module."""
    names: dict[str, Any] = {"factor": factor}
    exec("f = lambda x: x * factor", names)
    made: Callable[[np.ndarray], np.ndarray] = names["f"]
    return made


UNLIKE: dict[str, tuple[Any, Any]] = {
    "names": (scaled, np.square),
    "lambdas": (lambda x: x + 1, lambda x: x + 2),
    "lambdas of other code": (lambda x: x + 1, lambda x: x - 1),
    "partial, keywords": (partial(scaled, factor=2), partial(scaled, factor=3)),
    "partial, arguments": (partial(np.add, 2.0), partial(np.add, 3.0)),
    "partial, functions": (partial(np.add, 2.0), partial(np.multiply, 2.0)),
    "partial, nested lists": (
        partial(scaled, factor=[[1, 2], [3]]),
        partial(scaled, factor=[[1], [2, 3]]),
    ),
    "partial, a number as text": (partial(scaled, factor=1), partial(scaled, factor="1")),
    "partial, one number in a list": (partial(scaled, factor=1), partial(scaled, factor=[1])),
    "partial, commas in text": (
        partial(scaled, factor=["a", "b"]),
        partial(scaled, factor=["a, b"]),
    ),
    "partial, nothing": (partial(scaled, factor=[]), partial(scaled, factor="")),
    "partial, slices": (
        partial(scaled, factor=range(0, 3, 1)),
        partial(scaled, factor=slice(0, 3, 1)),
    ),
    "partial, text like a dict": (partial(scaled, factor={}), partial(scaled, factor="dict")),
    "partial, an argument func": (partial(scaled, func=np.add), partial(adding(1), func=np.add)),
    "a list and a tuple": (partial(scaled, factor=[1, 2]), partial(scaled, factor=(1, 2))),
    "keys": (adding({1: 2}), adding({"1": 2})),
    "attributes beside a dict": tuple(
        partial(scaled, factor=SimpleNamespace(dict={}, by=by)) for by in (1, 2)
    ),
    "partial of a lambda": (partial(adding(1)), partial(adding(2))),
    "closures": (adding(1), adding(2)),
    "closures over arrays": (adding(np.zeros(8)), adding(np.ones(8))),
    "closures over functions": (adding(adding(1)), adding(adding(2))),
    "defaults": (defaulting(2.0), defaulting(3.0)),
    "numbers of the module": (other_global(2.0), other_global(3.0)),
    "fields": (Shift(1.0), Shift(2.0)),
    "fields, arrays": (Shift(np.zeros(8)), Shift(np.ones(8))),
    "attributes": (Plain(1.0), Plain(2.0)),
    "methods": (Plain(1.0).method, Plain(2.0).method),
    "other methods": (Plain(1.0).method, Plain(1.0).__call__),
    "sets": (adding({"a", "b"}), adding({"a", "c"})),
    "bytes": (adding(b"a"), adding(b"b")),
    "complex numbers": (adding(1j), adding(2j)),
    "dates": (adding(date(2020, 1, 1)), adding(date(2020, 1, 2))),
    "paths": (partial(scaled, factor=Path("a")), partial(scaled, factor=Path("b"))),
    "counts": (Plain(Counter(a=1)), Plain(Counter(a=2))),
}


@pytest.mark.parametrize(("one", "other"), UNLIKE.values(), ids=UNLIKE)
def test_other_functions_or_arguments_differ(folder: Path, one: Any, other: Any) -> None:
    rows = rows_of(folder)
    found = [parts(rows.map(fn, spec=SPEC).batches(10)) for fn in (one, one, other)]
    assert found[0] == found[1]
    (line,) = differences(found[0], found[2])
    assert line.startswith("`dataset.fn")


def test_functions_are_named(folder: Path) -> None:
    rows = rows_of(folder)
    one, two = (parts(rows.map(fn, spec=SPEC).batches(10)) for fn in (scaled, np.square))
    line = f"`dataset.fn` was {__name__}:scaled, and is numpy:square"
    assert differences(one, two) == [line]


SCRIPT = """
import random, sys, functools, numpy as np, oocdata as ooc
from oocdata.describe import fingerprint
mean = np.arange(8.0)
class Own:
    def __init__(self): self.names, self.random = {"a", "b", "c", "d"}, random.Random()
    def __call__(self, x): return x
def helper(x): return x - mean
fns = [lambda x: helper(x) + 1 if x[0, 0] in {"a", "b", "c"} else x, Own(), helper,
       functools.partial(helper), np.negative]
rows = ooc.open(sys.argv[1])
spec = ooc.ArraySpec((8,), np.dtype("f8"))
print(*(fingerprint(rows.map(fn, spec=spec).batches(10)) for fn in fns), sep="\\n")
"""


def test_another_process_finds_the_same(folder: Path) -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(folder / "rows.npy")],
            capture_output=True, text=True, check=True, timeout=120,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1
    assert len(set(found.pop().splitlines())) == 5


SPAWNED = """
import functools, multiprocessing, sys, numpy as np, oocdata as ooc
from oocdata.describe import fingerprint
class Own:
    def __init__(self): self.factor = 3
    def __call__(self, x): return x * self.factor
def helper(x): return x - 1
def show():
    rows, spec = ooc.open(sys.argv[1]), ooc.ArraySpec((8,), np.dtype("f8"))
    for fn in (helper, Own(), functools.partial(helper), Own().__call__):
        print(fingerprint(rows.map(fn, spec=spec).batches(10)))
if __name__ == "__main__":
    show()
    process = multiprocessing.get_context("spawn").Process(target=show)
    process.start()
    process.join()
"""


def test_a_process_that_a_script_spawned_finds_the_same(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SPAWNED)
    command = [sys.executable, "-u", str(tmp_path / "script.py"), str(folder / "rows.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 8
    assert lines[:4] == lines[4:]


def test_a_function_that_calls_itself(folder: Path) -> None:
    def again(x: np.ndarray) -> np.ndarray:
        return again(x) if len(x) > 99 else x

    holder = Plain(1)
    holder.by = holder
    for fn in (again, holder):
        loader = rows_of(folder).map(fn, spec=SPEC).batches(10)
        assert fingerprint(loader) == fingerprint(loader)


class Node:
    """An object of a graph in which each refers to all others, a logger, a module and a lock."""

    def __init__(self, by: float, others: list[Node]) -> None:
        self.log, self.module, self.lock = logging.getLogger(__name__), np, threading.Lock()
        self.others, self.by = others, by
        others.append(self)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x + self.by


def graph(by: float) -> Callable[..., np.ndarray]:
    others: list[Node] = []
    for number in range(7):
        Node(number, others)
    return Node(by, others)


def importing(by: float) -> Callable[..., np.ndarray]:
    import numpy

    return lambda x: numpy.add(x, by)


@pytest.mark.parametrize("make", [graph, importing])
def test_cyclic_objects_loggers_and_modules(folder: Path, make: Any) -> None:
    """Each is visited once; loggers and modules count by name."""
    rows = rows_of(folder)
    one, two, other = (parts(rows.map(make(by), spec=SPEC).batches(4)) for by in (1.0, 1.0, 2.0))
    logging.getLogger(f"{__name__}.another").debug("")
    assert one == two == parts(rows.map(make(1.0), spec=SPEC).batches(4))
    assert differences(one, other)


def test_the_position_of_a_function_makes_no_difference(folder: Path) -> None:
    names: list[dict[str, Any]] = [{}, {}]
    exec("f = lambda x: x + 1", names[0])
    exec("\n\n\nf = lambda x: x + 1", names[1])
    one, two = (fingerprint(rows_of(folder).map(n["f"], spec=SPEC).batches(4)) for n in names)
    assert one == two


def test_whether_a_spec_was_tried_makes_no_difference(folder: Path) -> None:
    first, then = rows_of(folder).map(scaled), rows_of(folder)
    _ = first.spec
    assert fingerprint(first[:50].batches(5)) == fingerprint(then.map(scaled)[:50].batches(5))


# ---- text ----


def test_a_long_fingerprint_is_shortened_and_still_differs() -> None:
    def loader(last: int) -> ooc.Loader:
        rows = ooc.open(np.arange(3000.0))
        several = [rows[number : 2000 + number] for number in range(99)]
        return ooc.zip(*several, rows[last : 2000 + last]).batches(10, seed=last)

    one, two = (fingerprint(loader(last)) for last in (0, 1))
    assert len(one) <= 2048
    with pytest.raises(RestoreError, match=r"`dataset\.parts` differs; `seed` was 0, and is 1"):
        check_fingerprint(one, two)


@pytest.mark.parametrize(("name", "other"), [("class", "rows"), ("a.rows", "a")])
def test_members_of_a_zip_may_have_any_name(name: str, other: str) -> None:
    rows = ooc.open(np.arange(9.0))
    one, two = (
        parts(ooc.zip({name: rows[at : at + 5], other: rows[:5]}).batches(2)) for at in (0, 3)
    )
    (line,) = differences(one, two)
    assert line == f"`dataset.parts.'{name}'.rows` was 0:5:1, and is 3:8:1"


def test_a_closure_counts_by_its_names() -> None:
    def scaled(first: float | None, second: float | None) -> Any:
        return lambda x: x if first is None else x * first if second is None else x * second

    rows = ooc.open(np.arange(6.0))
    one, two = (parts(rows.map(scaled(*each)).batches(2)) for each in ((None, 5.0), (5.0, None)))
    assert one != two


def test_data_in_memory_are_digested_in_bounded_memory() -> None:
    """Data without a file are digested whole, a few rows at a time, without a copy."""
    data = np.arange(4 << 20, dtype="f8")
    found = {}
    for name, change in (("same", 0), ("again", 0), ("other", 1)):
        data[-2] += change
        view = ooc.open(data)
        tracemalloc.start()
        found[name] = dataset_fingerprint(view, exact=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < data.nbytes / 2
    assert found["same"] == found["again"] != found["other"]
