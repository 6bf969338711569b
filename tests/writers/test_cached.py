"""`Dataset.cache` computes each element once, and always returns the same values."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import fingerprint, from_json
from oocdata.errors import ArgumentError, MissingFileError, SourceError
from oocdata.memory import DEFAULT_MEMORY, set_memory
from oocdata.writers import cache as cache_module
from oocdata.writers import disk as lock_module
from oocdata.writers import output as output_module
from oocdata.writers.disk import PARTIAL

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

CALLS: list[int] = []
FIRST: list[float] = []  # the first number of each call


@dataclass(frozen=True)
class Times:
    """A function that counts the elements that it gets."""

    factor: int

    def __call__(self, x: np.ndarray) -> dict[str, Any]:
        CALLS.append(len(x))
        FIRST.append(x.flat[0])
        return {"x": x * self.factor, "sum": x.sum(axis=1)}


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    CALLS.clear()
    yield
    CALLS.clear()


@pytest.fixture
def frames(tmp_path: Path) -> ooc.View:
    np.save(tmp_path / "ds.npy", np.arange(120.0).reshape(40, 3))
    return ooc.open(tmp_path / "ds.npy")


@pytest.fixture(params=[None, "cache"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / request.param if request.param else None


def test_each_element_is_computed_once(frames: ooc.View, folder: Path | None) -> None:
    made = frames.map(Times(2), spec=frames.map(Times(2)).spec)
    CALLS.clear()
    cached = made.cache(folder)
    assert sum(CALLS) == 40
    assert cached.spec == made.spec
    loader = cached.batches(8, shuffle=True, seed=2)
    for epoch in range(2):
        seen = np.concatenate([batch["x"] for batch in loader.epoch(epoch)])
        assert_array_equal(np.sort(seen[:, 0]), np.arange(0, 240, 6.0))
    for ours, tensors in zip(loader.epoch(0), loader.to_tf(), strict=True):
        assert_array_equal(ours["sum"], tensors["sum"])
    assert sum(CALLS) == 40
    assert cached[7]["x"].tolist() == [42, 44, 46]
    assert cached[::-3].take([1])["sum"].tolist() == [3 * 36 * 3 + 3]


def test_rows_are_read_as_those_of_any_file(frames: ooc.View, tmp_path: Path) -> None:
    """Small rows in blocks that stay in memory: twice as fast as one by one."""
    cached = frames.map(Times(2)).cache(tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob("*/0.npy")
    reading = ooc.open(path).storage.reading
    assert "cached" in reading
    assert cached.stored["x"].storage.reading == reading


def test_another_run_reads_the_existing_cache(frames: ooc.View, tmp_path: Path) -> None:
    made = frames.map(Times(2))
    first = made.cache(tmp_path / "cache")
    CALLS.clear()
    again = frames.map(Times(2)).cache(tmp_path / "cache")
    assert sum(CALLS) <= 1  # the element from which the spec is derived
    assert fingerprint(again.batches(4)) == fingerprint(first.batches(4))
    other = frames.map(Times(3)).cache(tmp_path / "cache")
    part = frames[:10].map(Times(2)).cache(tmp_path / "cache")
    assert (other[1]["x"][0], again[1]["x"][0], len(part)) == (9, 6, 10)
    assert len(os.listdir(tmp_path / "cache")) == 3
    np.save(tmp_path / "ds.npy", np.zeros((40, 3)))
    changed = ooc.open(tmp_path / "ds.npy").map(Times(2)).cache(tmp_path / "cache")
    assert changed[1]["x"][0] == 0


def test_parts_of_a_split_share_no_row(frames: ooc.View, folder: Path | None) -> None:
    windows = frames.windows(4)
    cached = windows.map(np.negative).cache(folder)
    for sizes in [(0.5, 0.5), (20, 10)]:
        wanted = windows.split(*sizes)
        found = cached.split(*sizes)
        assert [len(part) for part in found] == [len(part) for part in wanted]
        for one, other in zip(found, wanted, strict=True):
            assert_array_equal(one.take(np.arange(len(one))), -other.take(np.arange(len(other))))
    groups = np.arange(40) // 10
    found = cached.split(0.5, 0.5, by=groups)
    seen = [set(np.unique(-part.take(np.arange(len(part)))).tolist()) for part in found]
    assert not seen[0] & seen[1]
    assert [len(part) for part in found] == [len(p) for p in windows.split(0.5, 0.5, by=groups)]


def test_with_other_datasets(frames: ooc.View, folder: Path | None) -> None:
    cached = frames.map(np.negative).cache(folder)
    both = ooc.zip(cached, frames)
    x, y = both.batches(40, shuffle=True).batch(0)
    assert_array_equal(x, -y)
    patches = cached.patches((2,), per_row=3)
    one, other = (patches.batches(120).batch(0, epoch) for epoch in range(2))
    assert not np.array_equal(one, other)  # a random function after a cache stays random
    doubled = cached.map(lambda x: x * 2).filter(np.arange(40) > 35)
    assert_array_equal(doubled.take([0]), [[-216, -218, -220]])
    whole = [cached.batches(8, shuffle=True).shard(2, rank) for rank in range(2)]
    assert_array_equal(
        np.concatenate([rank.batch(1) for rank in whole]), cached.batches(8, shuffle=True).batch(1)
    )


def test_described(frames: ooc.View, tmp_path: Path) -> None:
    loader = frames.map(np.negative).cache(tmp_path / "cache").batches(4, shuffle=True)
    again = from_json(loader.describe(), allow=["numpy"])
    assert_array_equal(again.batch(3), loader.batch(3))


def test_in_memory_is_counted_and_bounded(frames: ooc.View) -> None:
    told = frames.map(np.negative).cache().batches(4).explain()
    plain = ooc.open(np.asarray(frames)).batches(4).explain()
    assert told.resident_bytes - plain.resident_bytes >= 40 * 3 * 8
    set_memory(1 << 20)
    try:
        wide = ooc.open(np.zeros((100, 1000))).map(np.negative)
        with pytest.raises(ArgumentError, match=r"`folder` must be given.*800,000 bytes"):
            wide.cache()
    finally:
        set_memory(DEFAULT_MEMORY)


def test_datasets_that_cannot_be_cached(frames: ooc.View) -> None:
    def noisy(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return x + rng.random(x.shape)

    with pytest.raises(ArgumentError, match=r"before .* that draw at random.*<Map of noisy"):
        ooc.zip(frames, frames.map(noisy, rng=True)).cache()
    with pytest.raises(ArgumentError, match="before functions and patches that draw at random"):
        frames.patches((2,), per_row=2).cache()
    assert len(frames.patches((2,), step=1).cache()) == 80
    with pytest.raises(ArgumentError, match="no mixture"):
        ooc.mix({frames[:20]: 1, frames[20:]: 2}).cache()
    rows = ooc.ragged(np.arange(6), lengths=[3, 1, 2])
    with pytest.raises(ArgumentError, match=r"ragged.*`\.pad"):  # `.map` would not take them
        rows.cache()
    assert_array_equal(rows.pad().cache().take([1]), [[3, 0, 0]])


SCRIPT = """
import os, sys, numpy as np, oocdata as ooc
from oocdata.writers import cache, output
cache._BATCH_BYTES, output.SAVE_BYTES = 80, 160
seen = 0
def slow(x):
    global seen
    seen += len(x)
    if seen > int(os.environ["MOST"]):
        os.kill(os.getpid(), 9)
    return -x
os.chdir(sys.argv[1])
cached = ooc.open("ds.npy").map(slow, spec=ooc.ArraySpec((3,), np.dtype("f8"))).cache("cache")
assert (np.concatenate(list(cached.batches(7))) == -np.load("ds.npy")).all()
print(seen)
"""


def run(folder: Path, most: int) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, "-c", SCRIPT, str(folder)], {**os.environ, "MOST": str(most)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_a_killed_run_is_continued(frames: ooc.View, tmp_path: Path) -> None:
    assert run(tmp_path, 25).returncode == -signal.SIGKILL
    (place,) = (tmp_path / "cache").iterdir()
    assert place.name.endswith(PARTIAL)
    done = json.loads((place / "journal").read_text())["done"]
    assert done >= 6
    found = run(tmp_path, 1000)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) == 40 - done
    assert int(run(tmp_path, 0).stdout) == 0


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "about"])
def test_a_damaged_unfinished_cache_is_begun_anew(
    frames: ooc.View, tmp_path: Path, damage: str
) -> None:
    """Damage leaves too few bytes, another array, or a file of JSON that can't be read."""
    assert run(tmp_path, 25).returncode == -signal.SIGKILL
    (place,) = (tmp_path / "cache").iterdir()
    made = place / "result.npy"
    done = json.loads((place / "journal").read_text())["done"]
    if damage == "empty":
        (made / "0.npy").write_bytes(b"")
    elif damage == "cut":  # one byte of the saved rows is missing
        os.truncate(made / "0.npy", 128 + done * 24 - 1)
    elif damage == "other":
        np.save(made / "0.npy", np.zeros((40, 4)))
    else:
        for text in (b"", b"{", b"[]", b"{}", b"3", b"\0", b"\xff"):
            (made / "cache.json").write_bytes(text)
            assert [one.whole for one in cache_module.written_caches(tmp_path / "cache")] == [False]
    found = run(tmp_path, 1000)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) == (40 - done if damage == "about" else 40)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_BATCH_BYTES", 160)
    monkeypatch.setattr(output_module, "SAVE_BYTES", 640)


def test_arrays_are_continued_together(
    frames: ooc.View, tmp_path: Path, small_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = frames.map(Times(2), spec=frames.map(Times(2)).spec)
    usual, calls = output_module.Output.write, iter(range(6))

    def until_killed(output: Any, first: int, *rows: Any) -> None:
        if next(calls, None) is None:
            raise TimeoutError
        usual(output, first, *rows)

    monkeypatch.setattr(output_module.Output, "write", until_killed)
    with pytest.raises(TimeoutError):
        made.cache(tmp_path / "cache")
    monkeypatch.setattr(output_module.Output, "write", usual)
    FIRST.clear()
    cached = made.cache(tmp_path / "cache").take(np.arange(40))
    # A thread that read ahead may have called it once more for the writer that was killed.
    assert set(FIRST) == {3.0 * row for row in (20, 25, 30, 35)}
    assert_array_equal(cached["x"], 2 * np.asarray(frames))
    assert_array_equal(cached["sum"], np.asarray(frames).sum(axis=1))


def test_any_number_that_changes(tmp_path: Path) -> None:
    """Change a number that a digest of only some positions would miss, in a file or in memory."""
    array = np.arange(400_000.0).reshape(4000, 100)
    np.save(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", array)
    for row in (1234, 3456):
        array[row, 7] = -1
        with open(tmp_path / "a.npy", "r+b") as file:
            file.seek(-array.nbytes + (100 * row + 7) * 8, os.SEEK_END)
            file.write(np.float64(-1).tobytes())
        both = ooc.concat([ooc.open(tmp_path / "a.npy"), ooc.open(array)])
        parts = ooc.open([tmp_path / "a.npy", tmp_path / "b.npy"])[:4000]
        for dataset in (both, parts, ooc.open(array), ooc.open(tmp_path / "a.npy")):
            made = dataset.map(np.negative).cache(tmp_path / "cache")
            for part in range(0, len(dataset), 4000):
                assert made[part + row][7] == 1


def test_arrays_of_one_file_that_differ_in_few_places(tmp_path: Path) -> None:
    one, other = np.zeros((2, 400_000))
    other[123_456] = 1
    np.savez(tmp_path / "a.npz", one=one, other=other)
    rows = np.zeros(400_000, [("one", "f8"), ("other", "f8")])
    rows["other"] = other
    np.save(tmp_path / "b.npy", rows)
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["one"], file["other"], file["third"], file["rows"] = one, other, one, rows
    rows_of = [ooc.open(tmp_path / "b.npy"), ooc.open(tmp_path / "c.h5", "rows")]
    for pair in (
        *(
            [ooc.open(tmp_path / file, name) for name in ("one", "other")]
            for file in ("a.npz", "c.h5")
        ),
        *([view[name] for name in ("one", "other")] for view in rows_of),
        [ooc.open(tmp_path / "c.h5", [name, "third"])[:400_000] for name in ("one", "other")],
    ):
        assert [view.cache(tmp_path / "cache")[123_456] for view in pair] == [0, 1]


def module(text: str) -> Any:
    """Return a module with the given source text, as if it had been edited."""
    sys.modules["edited_since"] = made = ModuleType("edited_since")
    exec(compile(text, "edited_since.py", "exec"), made.__dict__)
    return made


FUNCTION = """
from dataclasses import dataclass

WEIGHT = 1

def inner(x, by=2):
    return x * by * WEIGHT

def outer(x):
    return inner(x)

@dataclass(frozen=True)
class Frozen:
    by: int = 1
    def __call__(self, x):
        return self.run(x)
    def run(self, x):
        return outer(x)

class Plain:
    def __call__(self, x):
        return outer(x)
    def method(self, x):
        return outer(x)
"""


@pytest.mark.parametrize(
    "change",
    [("= 1\n", "= 3\n"), ("by=2", "by=6"), ("* by *", "* 3 * by *"), ("inner(x)", "inner(x) * 3")],
)
@pytest.mark.parametrize("name", ["outer", "Frozen", "Plain", "method"])
def test_functions_that_were_edited(
    name: str, change: tuple[str, str], frames: ooc.View, folder: Path | None
) -> None:
    for text, factor in ((FUNCTION, 2), (FUNCTION.replace(*change, 1), 6), (FUNCTION, 2)):
        found = module(text)
        fn = found.Plain().method if name == "method" else getattr(found, name)
        fn = fn() if name in ("Frozen", "Plain") else fn
        cached = frames.map(fn).cache(folder)
        assert cached[7].tolist() == [21 * factor, 22 * factor, 23 * factor]
    if folder is not None:
        assert len(os.listdir(folder)) == 2
    del sys.modules["edited_since"]


GLOBALS = """
import edited_since

FACTORS = {"by": [2]}
LOG = []

def inner(x):
    return x * 2

class Scale:
    by = 2
    def run(self, x):
        return x * 2

SCALE = Scale()

def contained(x):
    LOG.append(len(x))
    return x * FACTORS["by"][0]

def of_a_module(x):
    return edited_since.inner(x)

def method(x):
    return SCALE.run(x)

def attribute(x):
    return x * SCALE.by

class Others:
    by = 2
    def run(self, x):
        return x * self.by
    def __call__(self, x):
        return self.run(x)
    @staticmethod
    def static(x):
        return x * 2
    @classmethod
    def of_class(cls, x):
        return cls.static(x)

class Derived(Others):
    pass

def made_here(x):
    return Others().run(x)

def derived(x):
    return Derived().run(x)

def static(x):
    return Others.static(x)

def of_class(x):
    return Derived.of_class(x)

instance = Others()

def in_closure():
    kind = Derived
    return lambda x: kind.static(x)

closure = in_closure()
"""


@pytest.mark.parametrize(
    "name",
    [
        "contained", "of_a_module", "method", "attribute", "made_here", "derived", "static",
        "of_class", "instance", "closure",
    ],
)  # fmt: skip
def test_globals_that_were_edited(name: str, frames: ooc.View, tmp_path: Path) -> None:
    for factor in (2, 6, 2):
        fn = getattr(module(GLOBALS.replace("2", str(factor))), name)
        for _ in range(2):  # the second time, the function has appended to its log
            cached = frames.map(fn).cache(tmp_path / "cache")
            assert cached[7].tolist() == [21 * factor, 22 * factor, 23 * factor]
    assert len(os.listdir(tmp_path / "cache")) == 2
    del sys.modules["edited_since"]


DEEP = """
import re
import numpy as np

PATTERN = re.compile("a" * 300 + "2")
DATES = np.arange(2000).astype("M8[D]")
DATES[1000] = 2

@np.errstate(divide="ignore")
def decorated(x):
    return x * 2

def pattern(x):
    return x * int(PATTERN.pattern[300:])

def dates(x):
    return x * DATES[1000].astype(int)

def called_30(x):
    return x * 2
""" + "\n".join(f"def called_{at}(x): return called_{at + 1}(x)" for at in range(30))


@pytest.mark.parametrize("name", ["decorated", "pattern", "dates", "called_0"])
def test_what_is_far_away_or_in_the_middle(name: str, frames: ooc.View, tmp_path: Path) -> None:
    for factor in (2, 6, 2):
        text = re.sub(r"(?<=\* )2|(?<=\] = )2|(?<=\")2", str(factor), DEEP)
        cached = frames.map(getattr(module(text), name)).cache(tmp_path / "cache")
        assert cached[7].tolist() == [21 * factor, 22 * factor, 23 * factor]
    assert len(os.listdir(tmp_path / "cache")) == 2
    del sys.modules["edited_since"]


LOOPS = """
looped = [2]
looped.append(looped)
named = {"by": 2}
named["self"] = (named, looped)

def of_list(x):
    return x * looped[0]

def of_dict(x):
    return x * named["by"]
"""


@pytest.mark.parametrize("name", ["of_list", "of_dict"])
def test_globals_that_contain_themselves(name: str, frames: ooc.View, tmp_path: Path) -> None:
    for factor in (2, 6, 2):
        fn = getattr(module(LOOPS.replace("2", str(factor))), name)
        cached = frames.map(fn).cache(tmp_path / "cache")
        assert cached[7].tolist() == [21 * factor, 22 * factor, 23 * factor]
    assert len(os.listdir(tmp_path / "cache")) == 2
    del sys.modules["edited_since"]


OBJECTS = """
import array, enum, fractions, functools, collections, datetime, pathlib
import numpy as np

class Slots:
    __slots__ = ("by",)
    def __init__(self, by):
        self.by = by
    def __call__(self, x):
        return x * self.by

class Holder:
    in_list = [2]
    in_partial = functools.partial(int, "2")
    def __init__(self, by):
        self.by = by
    def run(self, x):
        return x * self.by

class Unchanged:
    in_method = functools.partialmethod(lambda self, by, x: x * by, 2)

class Choice(enum.Enum):
    BY = 2

@functools.lru_cache
def remembered():
    return 2

slots = Slots(2)
HOLDER, PARTIAL, RANGE, SLICE = Holder(2), functools.partial(np.multiply, 2), range(2), slice(2)
FRACTION, DAYS, DEQUE = fractions.Fraction(2), datetime.timedelta(2), collections.deque([2])
BYTES, ARRAY, PATH = bytearray([2]), array.array("d", [2]), pathlib.Path("2")
TEXT = bytes([2])
EACH = np.vectorize(lambda x: x * 2)
HIDDEN = np.ma.masked_array([2, 6], [2 == 6, 2 == 2])
functions = dict(
    slots=slots, global_slots=lambda x: slots(x), method=lambda x: HOLDER.run(x),
    in_list=lambda x: x * Holder.in_list[0], in_partial=lambda x: x * Holder.in_partial(),
    in_method=lambda x: Unchanged().in_method(x), text=lambda x: x * TEXT[0],
    partial=lambda x: PARTIAL(x), of_range=lambda x: x * len(RANGE),
    of_slice=lambda x: x * SLICE.stop, fraction=lambda x: x * int(FRACTION),
    days=lambda x: x * DAYS.days, deque=lambda x: x * DEQUE[0], bytes=lambda x: x * BYTES[0],
    array=lambda x: x * ARRAY[0], path=lambda x: x * int(str(PATH)), each=lambda x: EACH(x),
    masked=lambda x: x * 2 if HIDDEN.mask[1] and HIDDEN[0] == 2 else x * 6,
    choice=lambda x: x * Choice.BY.value, remembered=lambda x: x * remembered(),
)
"""

TENSORS = """
import tensorflow as tf

CONSTANT, VARIABLE = tf.constant(2.0), tf.Variable(2.0)
LAYER = tf.keras.layers.Rescaling(2.0)

@tf.function
def graph(x):
    return x * 2.0

def in_closure(by):
    return lambda x: x * by.numpy()

functions = dict(
    constant=in_closure(CONSTANT), variable=in_closure(VARIABLE),
    global_constant=lambda x: x * CONSTANT.numpy(), global_variable=lambda x: x * VARIABLE.numpy(),
    graph=lambda x: graph(x).numpy(), layer=lambda x: LAYER(x).numpy(),
)
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (text, name)
        for text in (OBJECTS, TENSORS)
        for name in re.findall(r"(\w+)=", text[text.index("functions = dict(") :])
    ],
)
def test_objects_that_were_changed(text: str, name: str, frames: ooc.View, tmp_path: Path) -> None:
    if text is TENSORS:
        pytest.importorskip("tensorflow")
    for factor in (2, 6, 2):
        fn = module(text.replace("2", str(factor))).functions[name]
        cached = frames.map(fn).cache(tmp_path / "cache")
        assert cached[7].tolist() == [21 * factor, 22 * factor, 23 * factor]
    # A new variable, layer or graph of the same process has a name of its own.
    assert len(os.listdir(tmp_path / "cache")) == 2 or text is TENSORS
    del sys.modules["edited_since"]


def test_an_array_in_a_file_counts_by_its_numbers(frames: ooc.View, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    for by in (2.0, 6.0, 2.0):
        xarray.Dataset({"by": ("x", [by])}).to_netcdf(tmp_path / "more.nc")
        with xarray.open_dataset(tmp_path / "more.nc") as opened:
            times = eval("lambda x: x * by.item()", {"by": opened["by"]})
            cached = frames.map(times).cache(tmp_path / "cache")
        assert_array_equal(cached[7], frames[7] * by)
    assert len(os.listdir(tmp_path / "cache")) == 2


def test_objects_that_may_change_unnoticed(frames: ooc.View, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "more.h5", "w") as file:
        file["a"] = 1.0
        add = eval("lambda x: x + data[()]", {"data": file["a"]})
        with pytest.raises(ArgumentError, match=r"can't of a h5py.*Pass numbers.*open it inside"):
            frames.map(add).cache(tmp_path / "cache")
    nested: tuple[Any, ...] = ()
    for _ in range(2000):
        nested = (nested,)
    with pytest.raises(ArgumentError, match="in so many levels"):
        frames.map(eval("lambda x: x if nested else x + 1", {"nested": nested})).cache(tmp_path)


def test_several_processes_at_once(frames: ooc.View, tmp_path: Path) -> None:
    command, env = [sys.executable, "-c", SCRIPT, str(tmp_path)], {**os.environ, "MOST": "1000"}
    each = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(3)]
    computed = [int(one.communicate()[0]) for one in each]
    assert sum(computed) == 40


def test_damaged(frames: ooc.View, tmp_path: Path) -> None:
    frames.map(np.negative).cache(tmp_path / "cache")
    (place,) = (tmp_path / "cache").iterdir()
    os.truncate(place / "0.npy", 300)
    with pytest.raises(SourceError, match="must hold"):
        frames.map(np.negative).cache(tmp_path / "cache")
    (place / "0.npy").unlink()
    with pytest.raises(MissingFileError, match=r"0\.npy"):
        frames.map(np.negative).cache(tmp_path / "cache")


@pytest.mark.parametrize(
    "other", [np.zeros((41, 3)), np.zeros((39, 3)), np.zeros((40, 2)), np.zeros((40, 3), "f4")]
)
def test_an_array_that_is_another(frames: ooc.View, tmp_path: Path, other: np.ndarray) -> None:
    frames.map(np.negative).cache(tmp_path / "cache")
    (place,) = (tmp_path / "cache").iterdir()
    np.save(place / "0.npy", other)
    with pytest.raises(SourceError, match=r"must hold .* \(40, 3\) float64; .* Delete its folder"):
        frames.map(np.negative).cache(tmp_path / "cache")


def test_splits_of_a_cache_beside_its_origin(frames: ooc.View, folder: Path | None) -> None:
    both = ooc.concat([frames, frames.map(np.negative).cache(folder)])
    with pytest.raises(ArgumentError, match="share no row with another part"):
        both.split(0.5, 0.5, by=np.arange(80) // 40)
    pairs = ooc.zip(frames[:-1], frames.map(np.negative).cache(folder)[1:])
    parts = [part.take(np.arange(len(part))) for part in pairs.split(0.5, 0.5)]
    seen = [set(x.ravel()) | set(-y.ravel()) for x, y in parts]
    assert not seen[0] & seen[1]


def test_a_folder_that_can_not_be_written(frames: ooc.View, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    with pytest.raises(ArgumentError, match=r"`folder` must be a folder; '.*cache' is a file"):
        frames.map(np.negative).cache(tmp_path / "cache")
    with pytest.raises(
        SourceError, match=r"must be writable; the system says: Not a directory\. \["
    ):
        frames.map(np.negative).cache(tmp_path / "cache" / "below")


def test_deleted_while_it_waits_for_its_turn(
    frames: ooc.View, tmp_path: Path, small_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    negative = frames.map(np.negative)

    def killed_at_the_end(output: Any, first: int, *rows: Any) -> None:
        if first >= 36:
            raise TimeoutError
        write(output, first, *rows)

    write = output_module.Output.write
    monkeypatch.setattr(output_module.Output, "write", killed_at_the_end)
    with pytest.raises(TimeoutError):
        negative.cache(tmp_path / "cache")
    monkeypatch.setattr(output_module.Output, "write", write)
    usual, deleted = lock_module.fcntl.flock, []

    def after_a_deletion(file: Any, how: int) -> None:
        if not deleted:
            deleted.append(True)
            (found,) = cache_module.written_caches(tmp_path / "cache")
            assert not found.whole
            assert found.delete()
        usual(file, how)

    monkeypatch.setattr(lock_module.fcntl, "flock", after_a_deletion)
    cached = negative.cache(tmp_path / "cache")
    assert_array_equal(cached.take(np.arange(40)), -np.asarray(frames))
    (found,) = cache_module.written_caches(tmp_path / "cache")
    assert found.whole
    assert found.delete()
    assert list((tmp_path / "cache").iterdir()) == []


def sums_of(x: np.ndarray, columns: Any) -> np.ndarray:
    return np.stack([x[:, each].sum(1) for each in columns], 1)


def applied(x: np.ndarray, func: Any) -> np.ndarray:
    return func(x)


def negated(x: np.ndarray, func: Any) -> np.ndarray:
    return -func(x)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        [functools.partial(sums_of, columns=each) for each in ([[0, 1], [2]], [[0], [1, 2]])],
        [functools.partial(function, func=np.sqrt) for function in (applied, negated)],
    ],
    ids=["lists that are divided otherwise", "an argument called func"],
)
def test_arguments_that_read_alike(one: Any, other: Any, tmp_path: Path) -> None:
    array = np.arange(12.0).reshape(3, 4)
    for fn in (one, other):
        cached = ooc.open(array).map(fn).cache(tmp_path)
        assert_array_equal(cached.take(range(3)), fn(array))
