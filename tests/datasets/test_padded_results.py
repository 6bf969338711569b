"""Test functions that pad each batch to its own longest row, with NumPy arrays as the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.errors import ArgumentError, MapError
from oocdata.frontends.batching import stack_batches
from oocdata.runs import Run, run_bytes

LINES = [b"a " * (number * 7 % 23) + b"word" * (number % 4) for number in range(101)]
SPEC = {
    "words": ooc.ArraySpec((23, 2), np.dtype("i4"), "padded"),
    "count": ooc.ArraySpec((), np.dtype("i8")),
}


def tokens(lines: Any) -> dict[str, np.ndarray]:
    rows = [[(len(word), word[0]) for word in line.split()] for line in lines]
    longest = max(map(len, rows))
    padded = [row + [(0, 0)] * (longest - len(row)) for row in rows]
    words = np.array(padded, "i4").reshape(len(rows), longest, 2)
    return {"count": np.array(list(map(len, rows))), "words": words}


@pytest.fixture
def mapped(tmp_path: Path) -> ooc.Zip:
    (tmp_path / "lines.txt").write_bytes(b"".join(line + b"\n" for line in LINES))
    lines = ooc.open(tmp_path / "lines.txt")
    return ooc.zip(lines.map(tokens, spec=SPEC), ooc.open(np.arange(len(LINES))))


def check(batch: Any, chosen: Any) -> None:
    found, numbers = batch
    assert_array_equal(numbers, chosen)
    wanted = tokens([LINES[number] for number in chosen])
    assert list(found) == ["words", "count"]
    for name, array in found.items():
        assert array.dtype == wanted[name].dtype
        assert_array_equal(array, wanted[name])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "weights": np.arange(1.0, 102)},
        {"shuffle": True, "workers": 2},
    ],
)
def test_every_way_to_read(mapped: ooc.Zip, options: dict[str, Any]) -> None:
    loader = mapped.batches(8, seed=3, **options)
    widths = set()
    for step, batch in enumerate(loader.epoch(1)):
        check(batch, loader.positions(step, 1))
        widths.add(batch[0]["words"].shape[1])
    assert step == len(loader) - 1 == 12
    assert len(widths) > 3
    tensors = loader.to_tf(start=(1, 2))
    assert tensors.element_spec[0]["words"].shape.as_list() == [None, None, 2]
    shapes = []
    for at, (x, numbers) in enumerate(tensors):
        check(
            ({name: each.numpy() for name, each in x.items()}, numbers), loader.positions(at + 2, 1)
        )
        shapes.append(x["words"].shape)
    assert len(shapes) == len(loader) - 2


def test_ranks_share_a_batch(mapped: ooc.Zip) -> None:
    loader = mapped.batches(8, shuffle=True, drop_remainder=True)
    for index in range(2):
        shard = loader.shard(2, index)
        for step, batch in enumerate(shard.epoch(0)):
            check(batch, shard.positions(step))


def test_stored_rows_in_workers() -> None:
    """Rows padded to one of several lengths, which threads alone read before."""
    lengths = np.arange(1, 101)
    rows, bounds = ooc.ragged(np.arange(5050), lengths=lengths), (10, 50, 100)
    both = ooc.zip(rows.pad(bounds), rows.mask(bounds))
    one = both.batches(8, shuffle=True, bucket=bounds)
    others = both.batches(8, shuffle=True, bucket=bounds, workers=2)
    for wanted, found, tensors in zip(
        one.epoch(1), others.epoch(1), others.to_tf(start=(1, 0)), strict=True
    ):
        for own, other, tensor in zip(wanted, found, tensors, strict=True):
            assert_array_equal(own, other)
            assert_array_equal(own, tensor)


def test_description_keeps_the_limits(mapped: ooc.Zip, tmp_path: Path) -> None:
    loader = mapped[10:90].batches(8)
    objects: list[Any] = []
    again = from_json(as_json(loader, objects=objects), objects=objects)
    assert again.spec == loader.spec
    assert fingerprint(again) == fingerprint(loader)
    other = {**SPEC, "words": ooc.ArraySpec((24, 2), np.dtype("i4"), "padded")}
    lines = ooc.open(tmp_path / "lines.txt")
    assert fingerprint(lines.map(tokens, spec=other).batches(8)) != fingerprint(
        lines.map(tokens, spec=SPEC).batches(8)
    )


def test_bytes_of_the_largest_lengths(mapped: ooc.Zip) -> None:
    # 8 rows of 23 words of (2,) int32, rounded up to 64 words; counts; numbers.
    assert mapped.batches(8).array_bytes == [192 * 8, 64, 64]
    assert run_bytes(mapped.batches(8), 2) == 2 * (192 * 8 + 128)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_any_widths(of_batches: list[int]) -> None:
    widths = np.repeat(of_batches, 2)

    def pad(positions: Any) -> np.ndarray:
        longest = int(widths[positions].max())
        return np.broadcast_to(positions[:, None], (len(positions), longest)).copy()

    dataset = ooc.open(np.arange(len(widths))).map(pad, spec=ooc.ArraySpec((4,), "i8", "padded"))
    loader = dataset.batches(2)
    batches = loader.read(Run(epoch=0, start=0, stop=len(loader)))
    values, counts, _ = stack_batches(batches, loader)
    for step, width in enumerate(widths[::2]):
        assert batches[step].shape == (2, width)
        assert counts[step].tolist() == [2, width]
        assert (
            values[step, : 2 * width].tolist()
            == np.repeat([2 * step, 2 * step + 1], width).tolist()
        )


def test_no_elements(mapped: ooc.Zip) -> None:
    assert mapped.take([])[0]["words"].shape == (0, 23, 2)


@pytest.mark.parametrize(
    ("spec", "batched"),
    [
        (ooc.ArraySpec((None,), "i8", "padded"), True),
        (ooc.ArraySpec((), "i8", "padded"), True),
        (ooc.ArraySpec((0,), "i8", "padded"), True),
        (ooc.ArraySpec((5,), "i8", "ragged"), True),
        (ooc.ArraySpec((5,), "i8", "sparse"), True),
        (ooc.ArraySpec((5,), "i8", "padded"), False),
    ],
)
def test_other_forms_are_refused(spec: ooc.ArraySpec, batched: bool) -> None:
    with pytest.raises(ArgumentError, match="how long the rows of padded batches are at most"):
        ooc.open(np.arange(9)).map(lambda x: x, spec=spec, batched=batched)


@pytest.mark.parametrize(
    "result",
    [
        lambda x: np.zeros((len(x), 6), "i8"),  # longer
        lambda x: np.zeros((len(x), 5), "i4"),
        lambda x: np.zeros((len(x), 5, 1), "i8"),
        lambda x: np.zeros(len(x), "i8"),
        lambda x: (np.zeros((len(x), 5), "i8"), x),
    ],
)
def test_results_beyond_the_spec(result: Any) -> None:
    dataset = ooc.open(np.arange(9)).map(result, spec=ooc.ArraySpec((5,), "i8", "padded"))
    with pytest.raises(MapError, match=r"\(None,\) int64, padded by the function up to 5"):
        dataset.batches(4).batch(0)


def test_what_needs_arrays_of_one_shape(mapped: ooc.Zip, tmp_path: Path) -> None:
    for call in (
        lambda: mapped.map(lambda x, y: y),
        lambda: mapped.cache(tmp_path / "cache"),
        lambda: mapped.batches(4).to_keras(),
        lambda: ooc.mix({mapped: 1, mapped[:9]: 2}),
    ):
        with pytest.raises(ArgumentError):
            call()
