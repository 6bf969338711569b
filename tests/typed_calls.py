"""The public calls as mypy must see them: it checks this file, and nothing runs it.

A call that must be refused has the error that it must give; where it gives none, mypy says that the
comment is unused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import oocdata as ooc
from oocdata.tools.profile import Profile

MASK = np.ones(3, np.bool_)


def accepted(frames: ooc.View, other: ooc.View) -> None:
    """Calls of the documentation, and the types of their results."""
    assert_type(ooc.open(Path("ds.npy")), ooc.View)
    ooc.open("a.h5", ["a", "b"], axis=("trajectory", "time"), missing="fill", pad=0)
    ooc.open(["a.bin", "b.bin"], axis=None, dtype="f4", shape=(-1, 3), offset=8)
    ooc.open("*.png", pictures=ooc.Pictures(size=(64, 64)))
    assert_type(frames.split(0.6, 0.4), tuple[ooc.View, ...])
    assert_type(frames.folds(5), list[tuple[ooc.View, ooc.View]])

    # Rows, and other datasets of the same class.
    assert_type(frames[1:3], ooc.View)
    assert_type(frames[[1, 2]], ooc.View)
    assert_type(frames[MASK], ooc.View)
    assert_type(frames[:, :3, 10:40], ooc.View)
    assert_type(frames["field"], ooc.View)
    assert_type(frames.filter(MASK), ooc.View)
    assert_type(frames.astype("f4"), ooc.View)
    assert_type(frames.take([1, 2]), NDArray[Any])
    assert_type(np.asarray(frames), NDArray[Any])
    assert_type(frames.next_frame(), ooc.Windows)
    assert_type(frames.windows((-8, -4, 0), pad=True, episodes=[3, 4])[1:], ooc.Windows)
    assert_type(frames.patches((64, 64), per_row=8), ooc.Patches)
    assert_type(frames.enumerate(), ooc.Zip)
    assert_type(frames.map(np.sqrt).cache("folder"), ooc.Cached)
    x, y = frames.next_frame()[0]
    assert_type(x.shape, Any)

    # Several datasets.
    members: dict[str, ooc.Dataset] = {"x": frames, "y": other}
    datasets: Sequence[ooc.Dataset] = [frames, other]
    for zipped in (ooc.zip(frames, other), ooc.zip({"x": frames}), ooc.zip(members)):
        assert_type(zipped, ooc.Zip)
        assert_type(zipped.map(lambda x, y: (x / 255, y)), ooc.Map)
    assert_type(ooc.zip([frames, other]), ooc.Zip)
    assert_type(ooc.concat(datasets), ooc.Concat)
    assert_type(ooc.mix({frames: 0.7, other: 0.3}), ooc.Mix)
    assert_type(ooc.stack([frames, other], axis=-1), ooc.View)

    # Python's own functions.
    for (x, y), label in zip(ooc.zip(frames, other), np.zeros(3), strict=True):
        assert_type((x, y, label), tuple[Any, Any, np.float64])
    elements: Iterator[Any] = iter(reversed(list(frames)))
    print(next(elements), *enumerate(reversed(frames)), len(frames))

    # Batches.
    loader = frames.next_frame().batches(32, shuffle=True, seed=7)
    assert_type(loader, ooc.Loader)
    frames.batches(32, shuffle=ooc.Shuffle(), weights=ooc.balanced(np.zeros(3)), workers=2)
    x, y = loader.batch(step=0)
    print(x.shape, [batch[0].mean() for batch in loader.epoch(0, start=1)])
    for x, y in loader:
        print(x.mean() - y.mean())
    assert_type(loader.shard(2, 0), ooc.Loader)
    assert_type(loader.profile(lambda x, y: None), Profile)
    loader.to_tf(start=(0, 3), epochs=2, parallel=4)
    stream = ooc.generate(lambda: iter([np.zeros(3)])).batches(4)
    print([x.shape for x in stream], [x.shape for x in stream.epoch(0)])

    with ooc.create("a.npy", element_shape=(3,), dtype="f4") as writer:
        writer.append(np.zeros((2, 3)))
    assert_type(ooc.stats(frames), ooc.Stats)
    assert_type(ooc.convert("a.npy", "b.zarr"), ooc.Conversion)


class Mine:
    """A source of the user's own."""

    shape = (3, 4)
    dtype = np.dtype("f4")

    def read_rows(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Read rows."""


SOURCE: ooc.RowSource = Mine()


def refused(v: ooc.View, loader: ooc.Loader) -> None:
    """Calls that raise an error; each must be one of mypy too."""
    ooc.open("a.npy", 3)  # type: ignore[arg-type]
    ooc.open("a.npy", missing="zero")  # type: ignore[arg-type]
    ooc.open("a.npy", format="csv")  # type: ignore[arg-type]
    ooc.open("a.npy", nothing=1)  # type: ignore[call-arg]
    v.batches()  # type: ignore[call-arg]
    v.batches("32")  # type: ignore[arg-type]
    v.batches(32, True)  # type: ignore[call-arg]
    v.batches(32, shuffle=3)  # type: ignore[arg-type]
    v.batches(32, workers=1.5)  # type: ignore[arg-type]
    v.windows("4", stride=1.5)  # type: ignore[arg-type]
    v.split("a", 0.4)  # type: ignore[arg-type]
    v.map(3)  # type: ignore[arg-type]
    v.shuffle(3)  # type: ignore[attr-defined]
    v.to_tf()  # type: ignore[attr-defined]
    v[0] = 3  # type: ignore[index]
    v.dtype = np.dtype("f4")  # type: ignore[misc]
    ooc.zip(3)  # type: ignore[arg-type]
    ooc.concat(3)  # type: ignore[arg-type]
    ooc.stack(3)  # type: ignore[arg-type]
    ooc.mix(3)  # type: ignore[arg-type]
    ooc.generate(3)  # type: ignore[arg-type]
    ooc.Pictures(size="a")  # type: ignore[arg-type]
    loader.batch("a")  # type: ignore[arg-type]
    loader.to_tf(start=3)  # type: ignore[arg-type]
    loader[0]  # type: ignore[index]
