"""Test mixtures and weights: shares, epochs, decoded chunks, ranks and resuming."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
from counting import counted
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.errors import ArgumentError, EmptyError
from oocdata.memory import lowered_limit
from oocdata.order.mixture import Mixture, Shares
from oocdata.order.weighted import Weighted


def numbers(*counts: int) -> list[ooc.View]:
    """Return arrays whose values identify the array and the row."""
    return [ooc.open(np.arange(count) + 1000 * at) for at, count in enumerate(counts)]


def epochs(loader: ooc.Loader, count: int) -> list[np.ndarray]:
    return [batch for epoch in range(count) for batch in loader.epoch(epoch)]


def chunked(rows: int, seed: int) -> Any:
    """Return a chunked array with distinct rows, and a counter of its decoded chunks."""
    array = np.arange(rows * 64.0).reshape(rows, 64) + seed * 10**6
    return counted(array, 8, 64)


# --- mixtures


@pytest.mark.parametrize("shuffle", [False, True, "global", "block"])
def test_every_batch_has_its_shares(shuffle: Any) -> None:
    one, two, three = numbers(700, 210, 41)
    loader = ooc.mix({one: 0.7, two: 0.3}).batches(32, shuffle=shuffle, seed=5)
    assert len(loader) == 700 // 32
    got = np.cumsum([(batch >= 1000).sum() for batch in epochs(loader, 5)])
    ideal = 0.3 * 32 * np.arange(1, len(got) + 1)
    assert np.abs(got - ideal).max() <= 0.5
    several = ooc.mix([(one, 5), (two, 2), (three, 1)]).batches(16, shuffle=shuffle)
    every = np.stack(epochs(several, 4))
    for member, share in enumerate((5, 2, 1)):
        given = np.cumsum((every // 1000 == member).sum(axis=1))
        assert np.abs(given - share * 2 * np.arange(1, len(given) + 1)).max() < 2


def test_each_member_goes_through_its_own_epochs() -> None:
    one, two = numbers(100, 33)
    loader = ooc.mix({one: 3, two: 1}, length=96).batches(8, shuffle=True, seed=1)
    every = np.concatenate(epochs(loader, 14))
    for low, count in ((0, 100), (1000, 33)):
        own = every[(every >= low) & (every < low + 1000)] - low
        whole = len(own) // count
        assert whole >= 8
        for epoch in np.split(own[: whole * count], whole):
            assert_array_equal(np.sort(epoch), np.arange(count))
        assert (np.diff(own) != 1).any()


def test_an_epoch_ends_before_a_member_restarts() -> None:
    one, two = numbers(100, 33)
    assert len(ooc.mix({one: 3, two: 1}).batches(4)) == 132 // 4
    assert len(ooc.mix({one: 1, two: 1}).batches(4)) == 66 // 4
    assert len(ooc.mix({one: 3, two: 1}, length=1000).batches(4)) == 250
    loader = ooc.mix({one: 3, two: 1}).batches(4, shuffle=True)
    every = np.concatenate(list(loader.epoch(0)))
    assert len(np.unique(every)) == len(every) == 132
    with pytest.raises(EmptyError, match=r"at most the 66 elements of an epoch.*`length`"):
        ooc.mix({one: 1, two: 1}).batches(67)


def test_the_length_of_an_epoch() -> None:
    one, two = numbers(60, 40)
    mixed = ooc.mix({one: 3, two: 1}, length=200)
    assert len(mixed[:].batches(4)) == len(mixed.enumerate().batches(4)) == 200 // 4


def test_chunks_of_members_are_decoded_once_an_epoch_of_their_own() -> None:
    (one, first), (two, second) = chunked(1024, 1), chunked(512, 2)
    order = ooc.BlockShuffle(8, 8, lanes=4)
    loader = ooc.mix({one: 2, two: 1}).batches(16, shuffle=order, seed=2)
    assert loader.explain().lanes == 4
    assert loader.spec.shape == (16, 64)
    with lowered_limit(1 << 20):  # 128 of the 192 chunks of one pass
        every = np.concatenate(epochs(loader, 2))
    assert len(every) == 2 * 1536
    assert_array_equal(np.unique(every[:, 0], return_counts=True)[1], 2)
    # Each chunk once in each of two epochs of its member, except for cached ones; and chunks cut
    # by borders between lanes again.
    assert 128 <= first.total() <= 2 * (128 + 4)
    assert 64 <= second.total() <= 2 * (64 + 4)


@pytest.mark.parametrize("shuffle", [True, ooc.BlockShuffle(8, 8, lanes=8)], ids=["rows", "lanes"])
def test_ranks_share_the_batches(shuffle: Any) -> None:
    (one, _), (two, _) = chunked(203, 1), chunked(90, 2)
    loader = ooc.mix({one: 0.7, two: 0.3}).batches(16, shuffle=shuffle, seed=3)
    for ranks in (1, 2, 4, 8):
        parts = [loader.shard(ranks, index) for index in range(ranks)]
        for step in (0, 5, len(loader) - 1):
            together = np.concatenate([part.batch(step, 2) for part in parts])
            assert_array_equal(together, loader.batch(step, 2))


def test_resume_at_any_step() -> None:
    one, two = numbers(90, 40)
    make = lambda: ooc.mix({one: 2, two: 1}).batches(8, shuffle=True, seed=9)  # noqa: E731
    every = epochs(make(), 3)
    steps = len(make())
    for start in (0, 1, steps - 1, steps + 3, 2 * steps, 3 * steps - 1):
        epoch, step = divmod(start, steps)
        rest = list(make().epoch(epoch, start=step))
        for got, expected in zip(rest, every[start : (epoch + 1) * steps], strict=True):
            assert_array_equal(got, expected)
    data = make().to_tf(start=(1, 2), epochs=2)
    for got, expected in zip(data, every[steps + 2 :], strict=True):
        assert_array_equal(got, expected)


def test_descriptions_and_workers(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(160.0))
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("u", data=np.arange(160.0) + 1000, chunks=(7,), compression="gzip")
    a, b = ooc.open(tmp_path / "a.npy"), ooc.open(tmp_path / "b.h5")
    weights = np.arange(320.0)
    mixed, weighted = ooc.mix({a: 0.25, b: 0.75}, length=70), ooc.concat([a, b])
    for loader in (
        mixed.batches(10, shuffle=True, seed=4),
        mixed.batches(8, shuffle=ooc.BlockShuffle(7, 4)).shard(2, 1),
        mixed.map(np.sqrt).batches(10),
        mixed.enumerate().batches(10, shuffle=True),
        weighted.batches(10, shuffle=True, weights=weights),
        weighted.batches(8, shuffle=ooc.BlockShuffle(7, 4, 4), weights=weights).shard(4, 3),
    ):
        again = from_json(as_json(loader), allow=("numpy",))
        copied = pickle.loads(pickle.dumps(loader))
        for step, epoch in ((0, 0), (len(loader) - 1, 3)):
            expected = loader.batch(step, epoch)
            for other in (again, copied):
                for got, one in zip(other.batch(step, epoch), expected, strict=True):
                    assert_array_equal(got, one)
        assert len(again) == len(copied) == len(loader)
        assert fingerprint(loader) == fingerprint(again) == fingerprint(copied)
    other = ooc.mix({a: 0.5, b: 0.5}, length=70)
    assert fingerprint(other.batches(10)) != fingerprint(mixed.batches(10))
    with_other = weighted.batches(10, shuffle=True, weights=weights[::-1])
    assert fingerprint(with_other) != fingerprint(
        weighted.batches(10, shuffle=True, weights=weights)
    )


def test_in_worker_processes(tmp_path: Path) -> None:
    one, two = numbers(50, 40)
    mixed = ooc.mix({one: 1, two: 1}).enumerate()
    weighted = ooc.open(np.arange(40))
    options: list[tuple[Any, dict[str, Any]]] = [
        (mixed, {}), (weighted, {"weights": np.arange(40) % 4})
    ]  # fmt: skip
    for dataset, more in options:
        here = dataset.batches(8, shuffle=True, seed=2, **more)
        there = dataset.batches(8, shuffle=True, seed=2, workers=1, **more)
        for got, expected in zip(there.epoch(1), here.epoch(1), strict=True):
            for one_, other in zip(got, expected, strict=True):
                assert_array_equal(one_, other)


def test_mixtures_of_and_in_other_datasets() -> None:
    array = np.zeros((40, 4, 6))
    one, two = ooc.open(array), ooc.open(array + 100)
    pairs = ooc.mix({one.next_frame(): 1, two.next_frame(): 2})
    x, _ = pairs.batches(9, shuffle=True).batch(1)
    assert (x[:, 0, 0] >= 100).sum() == 6
    labels = ooc.mix({ooc.open(np.zeros(40)): 1, ooc.open(np.ones(40)): 2})
    images = ooc.mix({one: 1, two: 2})
    x, label = ooc.zip(images, labels).batches(9, shuffle=True).batch(0)
    assert_array_equal(x[:, 0, 0] >= 100, label == 1)
    x, label = ooc.zip(images, labels).map(lambda x, y: (x + 1, y)).batches(9).batch(0)
    assert label.tolist().count(1) == 6
    crops = ooc.mix([(part.patches((2, 3), per_row=4), n) for part, n in ((one, 1), (two, 2))])
    assert (crops.batches(12, shuffle=True).batch(3)[:, 0, 0] >= 100).sum() == 8
    for whole in (images, ooc.zip(images, images)):
        with pytest.raises(ArgumentError, match="before they are mixed"):
            whole.patches((2, 3), per_row=4)
    # A function for one member, and one for all.
    own = ooc.mix({one.map(lambda x: x + 7): 1, two: 1}).map(lambda x: x + 1).batches(10)
    assert own.batch(0)[:, 0, 0].tolist().count(8) == 5


def test_members_are_split_and_selected_before_they_are_mixed() -> None:
    one, two = numbers(100, 40)
    mixed = ooc.mix({one: 1, two: 1})
    assert_array_equal(mixed.take([0, 139, 100]), [0, 1039, 1000])
    rows = np.arange(140)
    for select in (lambda whole: whole[::-1], lambda whole: whole.filter(rows % 2 == 0)):
        with pytest.raises(ArgumentError, match="Select, split or cut the members, then mix"):
            select(mixed)
    for whole in (mixed, mixed.map(np.sqrt), mixed.enumerate()):
        for split in (
            lambda whole: whole.split(100, 40),  # which are the members
            lambda whole: whole.split(0.5, 0.5, by=rows),
            lambda whole: whole.split_at(100, coordinate=rows),
            lambda whole: whole.folds(2),
        ):
            with pytest.raises(ArgumentError, match="Split the members, then mix their parts"):
                split(whole)


ONE_HOT = np.eye(3, dtype=np.float32)[np.arange(30) % 3]


@pytest.mark.parametrize("labels", [ONE_HOT, ONE_HOT.astype(bool), ooc.open(ONE_HOT)])
def test_one_hot_labels_are_answered_with_their_classes(labels: Any) -> None:
    rows = ooc.open(np.arange(30))
    for call in (
        lambda ids: rows.split(0.5, 0.5, stratify=ids),
        lambda ids: rows.split(0.5, 0.5, by=ids),
        lambda ids: rows.filter(ids if ids is labels else ids == 1),
        lambda ids: rows.batches(3, shuffle=True, weights=ids),
        lambda ids: ooc.balanced(ids),
    ):
        with pytest.raises(ArgumentError, match=r"Of one-hot .* np\.argmax\(array, axis=1\)"):
            call(labels)
        call(np.argmax(labels, axis=1))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "a dict of datasets and weights"),
        ([ooc.open(np.arange(3))], "a dict of datasets and weights"),
        ([(np.arange(3), 1)], "must get datasets"),
        *[
            ([(ooc.open(np.arange(3)), bad)], "must be positive numbers")
            for bad in (0, -1, np.nan, np.inf, True, "1", None)
        ],
        ([(ooc.open(np.arange(3)), 1), (ooc.open(np.arange(3.0)), 1)], "dataset 1 has .* float64"),
        ([(ooc.open(np.arange(0)), 1)], "member 0 holds none"),
        ([(ooc.mix([(ooc.open(np.arange(3)), 1)]), 1)], "no mixtures"),
    ],
)
def test_invalid_mixtures(members: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ooc.mix(members)


def test_members_of_very_different_size() -> None:
    """Test that shares are exact, however different they are."""
    for counts in ((10**8, 50), (5_000_004, 4_999_996), (2**40 + 1, 3)):
        parts = [ooc.open(np.broadcast_to(np.float32(at), (n,))) for at, n in enumerate(counts)]
        members = ooc.mix(list(zip(parts, counts, strict=True)))
        assert members.epoch_length == sum(counts)
        found = Shares(members.weights, 1).counts(np.array([members.epoch_length]))
        assert found[:, 0, 0].tolist() == list(counts)
    with pytest.raises(ArgumentError, match="at least 1 / 3e"):
        ooc.mix([(parts[0], 1), (parts[1], 1e-15)])


def test_unsupported_methods_of_a_mixture() -> None:
    one, two = numbers(10, 10)
    mixed = ooc.mix({one: 1, two: 2})
    with pytest.raises(ArgumentError, match="`weights` must be None with a mixture"):
        mixed.batches(2, weights=np.ones(20))
    with pytest.raises(ArgumentError, match="equal lengths and weights"):
        ooc.zip(mixed, ooc.mix({one: 1, two: 1})).batches(2)
    with pytest.raises(ArgumentError, match="`length` must be"):
        ooc.mix({one: 1}, length=0)
    with pytest.raises(ArgumentError, match="`length` must be a whole number from 1 to"):
        ooc.mix({one: 1}, length=2**62)


def test_explain() -> None:
    one, two = numbers(700, 60)
    loader = ooc.mix({one: 0.7, two: 0.3}, length=400).batches(40, shuffle=True)
    text = str(loader.explain())
    assert "400 elements of () int64\nin 10 batches of 40" in text
    assert "mixture of 2 members, each: full shuffle: 70.0% from 700 elements, 0.4 times" in text
    assert "30.0% from 60 elements, 2 times an epoch" in text
    many = ooc.mix([(part, 1) for part in numbers(*[20] * 9)]).batches(9, shuffle=True)
    assert "; and 5 more" in many.reason
    assert "       and 3 more arrays" in str(many.explain())
    few = ooc.mix({one: 1, ooc.open(np.arange(3)): 9}, length=1000).batches(100, shuffle=True)
    assert few.explain().advice == ()  # repeated elements are intended
    weighted = one.batches(70, shuffle=True, weights=np.arange(700) % 7 == 3)
    text = str(weighted.explain())
    assert "draws by weight, full shuffle: drawn by weight" in text
    assert "100 of 700 elements can come, one up to 7 times an epoch" in text
    plain = one.batches(70, shuffle=True).explain()
    assert weighted.explain().resident_bytes - plain.resident_bytes == 12 * 700


def test_a_draw_takes_no_memory_by_length() -> None:
    import tracemalloc

    long = ooc.open(np.broadcast_to(np.float32(1), (10**9,)))
    loader = ooc.mix({long: 1, long[:-5]: 2}).batches(64, shuffle=True)
    tracemalloc.start()
    for step in (0, len(loader) // 2, len(loader) - 1):
        loader.positions(step, epoch=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


# --- weights


@pytest.mark.parametrize("shuffle", [True, "block", "global", ooc.BlockShuffle(8, 4)], ids=str)
def test_elements_are_drawn_in_proportion_to_weights(shuffle: Any) -> None:
    view, _ = chunked(320, 0)
    random = np.random.default_rng(0)
    weights = random.integers(0, 5, 320).astype("f4")
    for dataset in (view, view[::-1], view.filter(np.arange(320) % 3 > 0), view.patches((9,))):
        own = weights[: len(dataset)] if len(dataset) <= 320 else np.resize(weights, len(dataset))
        loader = dataset.enumerate().batches(16, shuffle=shuffle, weights=own, seed=1)
        for epoch in (0, 5):
            drawn = np.concatenate([numbers for numbers, _ in loader.epoch(epoch)])
            times = np.bincount(drawn, minlength=len(dataset))
            expected = len(dataset) * own / own.sum()
            assert np.abs(times - expected).max() < 1
            assert times[own == 0].sum() == 0


def test_chunks_of_draws_are_decoded_once() -> None:
    view, decoded = chunked(2048, 0)
    weights = np.random.default_rng(0).random(2048)
    weights[:512] = 0
    order = ooc.BlockShuffle(8, 8, lanes=4)
    loader = view.batches(16, shuffle=order, weights=weights)
    with lowered_limit(1 << 20):
        drawn = np.concatenate(list(loader.epoch(0)))
    assert len(drawn) == 2048
    assert decoded.total() <= 192 + 4  # chunks without weights are never decoded
    for ranks in (1, 2, 4):
        parts = [loader.shard(ranks, index) for index in range(ranks)]
        together = np.concatenate([part.batch(7, 1) for part in parts])
        assert_array_equal(together, loader.batch(7, 1))
    assert isinstance(loader.order, Weighted)


def test_weights_of_a_view_and_balanced_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.arange(30, dtype="u1"))
    x = ooc.open(np.arange(30))
    one = x.batches(5, shuffle=True, weights=ooc.open(tmp_path / "w.npy"))
    other = x.batches(5, shuffle=True, weights=np.arange(30.0) / 7)
    assert_array_equal(one.positions(3), other.positions(3))
    labels = np.array([0] * 24 + [1] * 4 + [2] * 2)
    for given in (labels, labels.astype("i1"), [f"class {at}" for at in labels], ooc.open(labels)):
        weights = ooc.balanced(given)
        assert weights.sum() == pytest.approx(1)
        loader = x.batches(6, shuffle=True, weights=weights)
        drawn = np.concatenate(list(loader.epoch(0)))
        assert_array_equal(np.bincount(labels[drawn]), 10)
    codes = np.where(labels == 1, -1, labels)  # of pandas, for a missing value
    drawn = np.concatenate(list(x.batches(6, shuffle=True, weights=ooc.balanced(codes)).epoch(1)))
    assert_array_equal(np.bincount(labels[drawn]), [15, 0, 15])
    assert_array_equal(ooc.balanced([True, False, False]), [0.5, 0.25, 0.25])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(29), "each of the 30 elements"),
        (np.ones((30, 1)), r"shape \(30, 1\)"),
        (ooc.open(np.ones((30, 2))), "one value for each row"),
        (["1"] * 30, "got <U1"),
        (np.where(np.arange(30) == 4, np.nan, 1), "have a value everywhere; that at 4 is nan"),
        (np.where(np.arange(30) > 27, -1, 1), "got -1.0 for element 28"),
        (np.full(30, np.inf), "got inf for element 0"),
        (np.zeros(30), "not all 0, .* got 0.0 for element 0"),
        (np.full(30, 1e307), "have a finite sum; got 1e"),
    ],
)
def test_invalid_weights(weights: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ooc.open(np.arange(30)).batches(5, shuffle=True, weights=weights)


@pytest.mark.parametrize(
    "shuffle", [True, ooc.BlockShuffle(30, 8), ooc.BlockShuffle(31, 4)], ids=str
)
@pytest.mark.parametrize("others", [2, 4, 6])
def test_classes_in_turn_are_drawn_equally_often(shuffle: Any, others: int) -> None:
    """Test labels that alternate regularly, which systematic sampling could miss."""
    labels = (np.arange(6000) % (others + 1) == 0).astype(int)
    loader = ooc.open(labels).batches(30, shuffle=shuffle, weights=ooc.balanced(labels), seed=1)
    for epoch in range(6):
        drawn = np.concatenate(list(loader.epoch(epoch)))
        assert abs(drawn.mean() - 0.5) < 0.02


@pytest.mark.parametrize("sizes", [(300, 200, 100, 37), (100, 100, 250, 3)])
def test_classes_anywhere_are_drawn_equally_often(sizes: tuple[int, ...]) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(4), sizes))
    loader = ooc.open(labels).batches(32, shuffle=True, weights=ooc.balanced(labels), seed=1)
    for epoch in range(4):
        times = np.bincount(np.concatenate(list(loader.epoch(epoch))))
        expected = len(labels) / 4
        assert abs(times[[2, 3]] - expected).max() < 1  # elements with unique weights
        assert abs(times - expected).max() < 20 if sizes[0] == sizes[1] else 1


def test_weights_need_a_shuffle() -> None:
    with pytest.raises(ArgumentError, match="`shuffle` must not be False with `weights`"):
        ooc.open(np.arange(3)).batches(2, weights=[1, 2, 3])


@pytest.mark.parametrize("labels", [[0.5, 1], [[1], [2]], [-1, -1], [], [None, "a"]], ids=str)
def test_invalid_labels(labels: Any) -> None:
    with pytest.raises(ArgumentError, match="`labels` must"):
        ooc.balanced(np.array(labels, dtype=object) if None in labels else labels)


def test_labels_of_floats_are_told_that_classes_are_whole_numbers() -> None:
    with pytest.raises(
        ArgumentError, match=r"whole numbers or texts .* got float64 .*astype\(int\)"
    ):
        ooc.balanced([1.0, 2.0])


def test_a_user_defined_order_of_members_and_draws() -> None:
    one, two = numbers(30, 20)
    loader = ooc.mix({one: 1, two: 1}).batches(4, shuffle=ooc.Sequential())
    assert isinstance(loader.order, Mixture)
    assert sorted(loader.batch(0).tolist()) == [0, 1, 1000, 1001]
    drawn = one.batches(5, shuffle=Backwards(), weights=np.arange(30) >= 15)
    assert drawn.batch(0).tolist() == [29, 29, 28, 28, 27]


class Backwards(ooc.Order):
    """An order defined by a user."""

    def epoch_order(self, count: int, seed: int, epoch: int) -> Any:
        return lambda places: count - 1 - places


class Shifted(Backwards):
    """A user's order that leaves its range."""

    def epoch_order(self, count: int, seed: int, epoch: int) -> Any:
        return lambda places: places + 3


def test_an_order_of_a_member_stays_within_the_member() -> None:
    """Otherwise rows of the next member come in its place."""
    one, other = ooc.open(np.arange(30)), ooc.open(np.arange(1000, 1050))
    mixed = ooc.mix({one: 1, other: 1}).batches(60, shuffle=Shifted())
    with pytest.raises(ArgumentError, match=r"in \[0, 30\) .* positions from 3 to 32"):
        mixed.batch(0)
    drawn = one.batches(30, shuffle=Shifted(), weights=np.ones(30))
    with pytest.raises(ArgumentError, match=r"in \[0, 30\) .* positions from 3 to 32"):
        drawn.batch(0)


# --- in fit


def test_a_killed_fit_goes_on_with_the_same_batches(tmp_path: Path) -> None:
    x = ooc.open(np.random.default_rng(0).random((60, 3)).astype("f4"))
    pairs = ooc.zip(x, x[:, :1])
    loaders = [
        ooc.mix({pairs[:40]: 3, pairs[40:]: 1}).batches(6, shuffle=True, seed=1),
        pairs.batches(6, shuffle=True, seed=1, weights=np.arange(60) % 5),
    ]
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    first = model.get_weights()

    def fit(folder: Path, loader: ooc.Loader, epochs: int) -> list[np.ndarray]:
        model.set_weights(first)
        resume = ooc.Resume(folder, loader, every=2)
        data = resume.to_tf()
        model.fit(data, epochs=epochs, callbacks=[resume], shuffle=False, verbose=0)
        return model.get_weights()

    for number, loader in enumerate(loaders):
        whole = fit(tmp_path / f"whole{number}", loader, 3)
        fit(tmp_path / f"parts{number}", loader, 1)
        again = fit(tmp_path / f"parts{number}", loader, 3)
        for one, other in zip(whole, again, strict=True):
            assert_array_equal(one, other)


def test_fit_takes_mixtures_and_weights_of_samples() -> None:
    x, y = ooc.open(np.ones((40, 3), "f4")), ooc.open(np.ones((40, 1), "f4"))
    wrong = ooc.open(np.full((40, 1), 9, "f4"))
    ones, zeros = (ooc.open(np.full(40, value, "f4")) for value in (1, 0))
    # Wrong elements have weight 0, so training does not see them.
    mixed = ooc.mix({ooc.zip(x, y, ones): 1, ooc.zip(x, wrong, zeros): 1})
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    data = mixed.batches(8, shuffle=True)
    history = model.fit(data.to_tf(), epochs=3, shuffle=False, verbose=0)
    assert history.history["loss"][-1] < 0.01
    assert len(data) == 10
    assert np.abs(model.predict(np.ones((1, 3), "f4"), verbose=0) - 1).max() < 0.1
