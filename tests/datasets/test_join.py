"""Test joins, with pandas as the oracle, and count decoded chunks."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from counting import counted
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.join import matches
from oocdata.describe import as_json, from_json
from oocdata.errors import ArgumentError, EmptyError, MissingPartnerWarning

IDS: dict[str, Callable[[list[int]], np.ndarray]] = {
    "int": lambda n: np.array(n, np.int64) - 30,
    "uint": lambda n: np.array(n, np.uint64) + np.uint64(2**63),
    "float": lambda n: np.array(n, np.float64) / 4,
    "date": lambda n: np.datetime64("2020-01-01T00:00", "s") + np.array(n, np.int64) * 90,
}
DAYS = ("2020-01-01", "2020-01-03")
NUMBERS = st.lists(st.integers(0, 60), max_size=25)


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("how", ["exact", "nearest", "previous"])
@settings(max_examples=15)
@given(NUMBERS, st.sets(st.integers(0, 60), min_size=1, max_size=25), st.sampled_from([None, 0, 4]))
def test_partners_equal_pandas(
    kind: str, how: Any, left: list[int], right: set[int], tolerance: int | None
):
    rng = np.random.default_rng(len(left))
    a, b = IDS[kind](left), rng.permutation(IDS[kind](sorted(right)))
    limit: Any = tolerance
    if tolerance is not None and kind == "float":
        limit = tolerance / 4
    if tolerance is not None and kind == "date":
        limit = np.timedelta64(tolerance * 90, "s")
    if how == "exact":
        found = matches(a, b)
        frame = pd.DataFrame({"id": a}).merge(
            pd.DataFrame({"id": b, "at": np.arange(len(b))}), on="id", how="left"
        )
        assert_array_equal(found, frame["at"].fillna(-1).astype(int))
        return
    found = matches(a, b, how, limit)
    direction: Any = "backward" if how == "previous" else "nearest"
    if kind == "date":
        limit = None if limit is None else pd.Timedelta(limit)
    one = pd.DataFrame({"id": a, "place": np.arange(len(a))}).sort_values("id", kind="stable")
    other = pd.DataFrame({"id": b, "at": np.arange(len(b))}).sort_values("id")
    if kind == "uint" and limit is not None:  # its distances are floats in pandas
        one["id"], other["id"] = (f["id"] - np.uint64(2**63) for f in (one, other))
    frame = pd.merge_asof(one, other, on="id", direction=direction, tolerance=limit)
    expected = frame.sort_values("place")["at"].fillna(-1).astype(int)
    assert_array_equal(found, expected)


def test_large_numbers_are_compared_exactly():
    far = np.array([-(2**63), 0, 2**63 - 1])
    assert matches(np.array([-(2**63) + 1, 2**62]), far, "nearest").tolist() == [0, 2]
    assert matches(np.array([2**63 - 1]), far[:1], "nearest", 2**62).tolist() == [-1]
    assert matches(np.array([2**53 + 1]), np.array([2**53, 2**53 + 1])).tolist() == [1]
    with pytest.raises(ArgumentError, match="int64 and float64"):
        matches(np.array([2**53 + 1]), np.array([2.0**53]))
    assert matches(np.array([3], "u1"), np.array([-1, 3], "i8")).tolist() == [1]
    seconds = np.array(["2020-01-01T00:00:01"], "M8[s]")
    assert matches(seconds, np.array(["2020-01-01T00:00:01"], "M8[ns]")).tolist() == [0]


def test_dates_of_views_are_dates():
    days = np.arange("2020-01-01", "2020-01-06", dtype="M8[D]")
    x, by_day = ooc.open(np.arange(5)), ooc.open(days)
    by_hour = ooc.open(days[::-1].astype("M8[h]") + np.timedelta64(2, "h"))
    for on in ((by_day, by_hour), (by_day, np.asarray(by_hour).view(by_hour.unit))):
        both = ooc.join(x, x, on=on, how="nearest", tolerance=np.timedelta64(2, "h"))
        assert_array_equal(both.take(range(5))[1], [4, 3, 2, 1, 0])
    with pytest.raises(EmptyError, match=r"no partner: 2020-01-01, .* second ids are 2020"):
        ooc.join(x, x, on=(by_day, by_hour))
    with pytest.raises(ArgumentError, match=r"datetime64\[D\] and int64"):
        ooc.join(x, x, on=(by_day, np.arange(5)))


def test_times_in_other_units_are_refused(tmp_path: Path):
    paths = tmp_path / "a.h5", tmp_path / "b.h5"
    for path, units in zip(paths, ("days since 2020-01-01", "days since 2020-01-03"), strict=True):
        with h5py.File(path, "w") as file:
            file["time"] = np.arange(5)
            file["time"].attrs["units"] = units if path is paths[0] else np.bytes_(units)
    x, (a, b) = ooc.open(np.arange(5)), [ooc.open(path, "time") for path in paths]
    assert len(ooc.join(x, x, on=(a, a))) == 5
    with pytest.raises(ArgumentError, match="'days since 2020-01-01' and 'days since 2020-01-03'"):
        ooc.join(x, x, on=(a, b))
    dates = [np.datetime64(day) + np.asarray(one) for day, one in zip(DAYS, (a, b), strict=True)]
    with pytest.warns(MissingPartnerWarning):
        assert len(ooc.join(x, x, on=dates)) == 3


def test_elements_are_in_the_order_of_the_first_dataset():
    a, b = ooc.open(np.arange(5)), ooc.open(np.arange(4) * 10)
    with pytest.warns(MissingPartnerWarning, match="1 of 5 elements have no partner: x"):
        both = ooc.join(a, b, on=(["d", "b", "x", "a", "b"], np.array([b"a", b"b", b"c", b"d"])))
    assert_array_equal(np.stack(both.take(range(4))), [[0, 1, 3, 4], [30, 10, 0, 10]])
    assert repr(both).startswith("<Zip: 4 elements")


def test_missing_partners_are_reported():
    a, ids = ooc.open(np.arange(5)), np.arange(5)
    with pytest.warns(
        MissingPartnerWarning, match="2 of 5 elements have no partner: 3, 4"
    ) as warned:
        assert len(ooc.join(a, a, on=(ids, ids - 2))) == 3
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ooc.join(a, a, on=(ids, ids))) == 5
    with pytest.raises(EmptyError, match=r"`on` .* 5 of 5 .*same things"):
        ooc.join(a, a, on=(ids, ids + 9))
    with pytest.raises(EmptyError, match=r"5 of 5 .*`tolerance` too small"):
        ooc.join(a, a, on=(ids, ids + 9), how="nearest", tolerance=1)


@pytest.mark.filterwarnings("ignore::oocdata.errors.MissingPartnerWarning")
def test_several_datasets_and_names():
    parts = {"vil": ooc.open(np.arange(6)), "ir": ooc.open(np.arange(6) * 10)}
    parts["vis"] = ooc.open(np.arange(6) * 100)
    on = {"vis": [5, 4, 3, 2, 1, 0], "vil": [0, 1, 2, 3, 9, 5], "ir": [1, 2, 3, 4, 5, 6]}
    joined = ooc.join(parts, on=on)
    assert len(joined) == 4
    batch = joined.take([0, 3])
    assert {name: array.tolist() for name, array in batch.items()} == {
        "vil": [1, 5], "ir": [0, 40], "vis": [400, 0]
    }  # fmt: skip
    again = ooc.join(joined, ooc.open(np.arange(4)), on=([1, 2, 3, 5], [5, 3, 2, 1]))
    assert again[0][0]["ir"] == 0
    assert again[0][1] == 3
    three = ooc.join(*parts.values(), on=[on[name] for name in parts])
    assert [array.tolist() for array in three.take([3])] == [[5], [40], [0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": ([1, 2, 3], [1, 1, 2])}, "each id of a partner once; these come back: 1"),
        ({"on": ([1, 2], [1, 2, 3])}, "one for each of the 3 elements; got int64 of shape"),
        ({"on": ([1, 2, 3],)}, "2 arrays of ids"),
        ({"on": {"a": [1], "b": [2]}}, "2 arrays of ids, one a dataset; got a dict"),
        ({"on": (["a", "b", "c"], [1, 2, 3])}, "ids that can be compared"),
        ({"on": (["a"] * 3, ["b", "c", "d"]), "how": "nearest"}, "'exact' for texts"),
        ({"how": "next"}, "'exact', 'nearest' or 'previous'"),
        ({"tolerance": 3}, "`tolerance` must come with"),
        ({"how": "nearest", "tolerance": -1}, "a number of at least 0, .* got -1"),
        ({"how": "nearest", "tolerance": "5min"}, "a number of at least 0"),
        (
            {
                "on": ([0.5, 1, 2], [0.5, 1, 2]),
                "how": "nearest",
                "tolerance": np.timedelta64(1, "s"),
            },
            "a number of at least 0, .* got np.timedelta64",
        ),
        ({"on": ([1.0, np.nan, 2], [1, 2, 3])}, "that at 1 is nan"),
    ],
)
def test_wrong_joins(options: Any, message: str):
    view, ids = ooc.open(np.arange(3)), np.arange(3)
    with pytest.raises(ArgumentError, match=message):
        ooc.join(view, view, **{"on": (ids, ids), **options})


def test_wrong_datasets_and_tolerances_of_dates():
    view, days = ooc.open(np.arange(3)), np.datetime64("2020-01-01") + np.arange(3)
    for datasets in ((view,), (view, np.arange(3)), ({"a": view},)):
        with pytest.raises(ArgumentError, match="two datasets or more"):
            ooc.join(*datasets, on=(days, days))
    with pytest.raises(ArgumentError, match="`on` must be a dict of"):
        ooc.join({"a": view, "b": view}, on=(days, days))
    without_unit = np.array([3]).view("m8")[0]
    for wrong in (3, "3D", without_unit, datetime.timedelta(-1)):
        with pytest.raises(ArgumentError, match=r"`tolerance` must be .* timedelta"):
            ooc.join(view, view, on=(days, days), how="nearest", tolerance=wrong)
    late = days.astype("M8[h]") + np.timedelta64(36, "h")
    for limit, number in [(datetime.timedelta(hours=12), 2), (np.timedelta64(11, "h"), 0)]:
        assert (matches(late, days, "nearest", limit) >= 0).sum() == number
    assert matches(np.arange(3), np.arange(3), "nearest", np.inf).tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::oocdata.errors.MissingPartnerWarning")
def test_a_join_decodes_each_chunk_once():
    a, decoded_a = counted(np.arange(400).reshape(100, 4), 10, 4)
    b, decoded_b = counted(np.arange(400).reshape(100, 4) + 1000, 10, 4)
    ids = np.random.default_rng(0).permutation(100)
    both = ooc.join(a, b, on=(ids[:80].tolist() + [200] * 20, np.sort(ids)))
    seen: list[int] = []
    for x, y in both.batches(8, shuffle=True, seed=1):
        assert_array_equal(ids[x[:, 0] // 4], (y[:, 0] - 1000) // 4)
        seen += (x[:, 0] // 4).tolist()
    assert sorted(seen) == list(range(80))
    assert set(decoded_a.values()) == set(decoded_b.values()) == {1}
    assert (len(decoded_a), len(decoded_b)) == (8, 10)


def test_a_part_of_a_split_shares_no_partner():
    a, b = ooc.open(np.arange(24)), ooc.open(np.arange(6) * 100)
    both = ooc.join(a, b, on=(np.arange(24), np.arange(6) * 4), how="previous")
    parts = [
        both.split(0.5, 0.5), both.split(0.4, 0.6), *both.folds(3),
        both.split_at(9, coordinate=np.arange(24)), both[::-1].split(0.6, 0.4),
    ]  # fmt: skip
    for one, other in parts:
        used = [set(part.take(range(len(part)))[1].tolist()) for part in (one, other)]
        assert not used[0] & used[1]
        assert len(one) + len(other) >= 24 - 6
    with pytest.raises(ArgumentError, match="elements that share no row"):
        both.split(0.5, 0.5, stratify=np.zeros(24, int))


def test_a_join_is_described(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.arange(24))
    np.save(tmp_path / "b.npy", np.arange(6) * 100)
    a, b = ooc.open(tmp_path / "a.npy"), ooc.open(tmp_path / "b.npy")
    both = ooc.join(a, b, on=(np.arange(24), np.arange(6) * 4), how="previous")
    loader = both.batches(5, shuffle=True)
    again = from_json(as_json(loader))
    for one, other in zip(loader.batch(2, 1), again.batch(2, 1), strict=True):
        assert_array_equal(one, other)
    assert len(again.dataset.split(0.5, 0.5)[0]) == len(both.split(0.5, 0.5)[0]) < 12
    windows = ooc.join(a.windows(3), b, on=(np.arange(22), np.arange(6) * 4), how="previous")
    parts = windows.split(0.5, 0.5)
    assert not set(parts[0].take(range(len(parts[0])))[0].ravel()) & set(
        parts[1].take(range(len(parts[1])))[0].ravel()
    )


def test_sensors_in_files_are_joined_by_the_ids_in_them(tmp_path: Path):
    """Test SEVIR's layout: event files with ids per sensor, in different orders."""
    rng = np.random.default_rng(0)
    names = np.array([f"S{number}" for number in range(12)], "S8")
    orders = {"vil": rng.permutation(12)[:10], "ir069": rng.permutation(12)[:9]}
    for sensor, order in orders.items():
        for number, part in enumerate(np.array_split(order, 3)):
            with h5py.File(tmp_path / f"{sensor}_{number}.h5", "w") as file:
                file["id"] = names[part]
                file[sensor] = np.broadcast_to(part[:, None, None], (len(part), 4, 3)).astype("i2")
    views: dict[str, ooc.View] = {}
    ids: dict[str, np.ndarray] = {}
    for sensor in orders:
        paths = sorted(tmp_path.glob(f"{sensor}_*.h5"))
        views[sensor] = ooc.open(paths, sensor)
        found = []
        for path in paths:
            with h5py.File(path) as file:
                found.append(file["id"][:])
        ids[sensor] = np.concatenate(found)
    with pytest.warns(MissingPartnerWarning, match="of 10 elements have no partner: S"):
        both = ooc.join(views, on=ids)
    batch = both.take(range(len(both)))
    assert_array_equal(batch["vil"][:, 0, 0], batch["ir069"][:, 0, 0])
    expected = [event for event in orders["vil"] if event in orders["ir069"]]
    assert batch["vil"][:, 0, 0].tolist() == expected
