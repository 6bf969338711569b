"""The keyed permutation: a bijection whose results never change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocdata.order import permutation
from oocdata.order.permutation import derive_keys, epoch_key, forward

pytestmark = pytest.mark.filterwarnings("error")

KEY = epoch_key(7, 0, "test")


def is_permutation(values: np.ndarray, size: int) -> bool:
    return bool(values.max() < size and (np.bincount(values.astype(np.int64)) == 1).all())


def test_every_size_up_to_2048_is_permuted() -> None:
    for size in range(1, 2049):
        values = np.arange(size, dtype=np.uint64)
        permuted = forward(values, size, KEY)
        assert is_permutation(permuted, size), size


@pytest.mark.parametrize("exponent", range(13, 21))
def test_sizes_next_to_powers_of_two_are_permuted(exponent: int) -> None:
    for size in range(max(2**exponent - 2, 1), 2**exponent + 3):
        permuted = forward(np.arange(size, dtype=np.uint64), size, KEY)
        assert is_permutation(permuted, size), size


@pytest.mark.parametrize("size", [2**62, 2**62 - 1, 2**61 + 1, 10**18, 3**39, 2**32, 2**32 + 1])
def test_huge_sizes_are_permuted_without_repeats(size: int) -> None:
    ends = np.concatenate([np.arange(5000), size - 1 - np.arange(5000)]).astype(np.uint64)
    permuted = forward(ends, size, KEY)
    assert int(permuted.max()) < size
    assert np.unique(permuted).size == ends.size


@given(
    sizes=st.lists(st.integers(1, 700) | st.integers(1, 2**62), min_size=1, max_size=40),
    seed=st.integers(),
)
def test_one_size_per_run_equals_one_call_per_run(sizes: list[int], seed: int) -> None:
    keys = derive_keys(epoch_key(seed, 0, "test"), np.arange(len(sizes), dtype=np.uint64))
    runs = np.arange(len(sizes)) % 5
    values = [np.arange(length) * 7919 % size for length, size in zip(runs, sizes, strict=True)]
    values = [part.astype(np.uint64) for part in values]
    together = forward(np.concatenate(values), np.array(sizes, dtype=np.uint64), keys, runs)
    alone = [forward(part, sizes[i], keys[i : i + 1]) for i, part in enumerate(values)]
    np.testing.assert_array_equal(together, np.concatenate(alone))


@given(size=st.integers(1, 3000), numbers=st.lists(st.integers(0, 2**64 - 1), min_size=2))
def test_one_key_per_value_equals_one_call_per_key(size: int, numbers: list[int]) -> None:
    keys = derive_keys(KEY, np.array(numbers, dtype=np.uint64))
    values = np.arange(len(numbers), dtype=np.uint64) % np.uint64(size)
    together = forward(values, size, keys)
    alone = [forward(values[i : i + 1], size, keys[i : i + 1])[0] for i in range(len(numbers))]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("many_keys", [False, True])
def test_the_stride_does_not_change_results(
    monkeypatch: pytest.MonkeyPatch, many_keys: bool
) -> None:
    values = np.arange(50_000, dtype=np.uint64)
    keys = derive_keys(KEY, values % np.uint64(7)) if many_keys else KEY
    expected = forward(values, 50_000, keys)
    monkeypatch.setattr(permutation, "_STRIDE", 999)
    np.testing.assert_array_equal(forward(values, 50_000, keys), expected)


def test_arguments_are_not_modified() -> None:
    values, keys = np.arange(100, dtype=np.uint64), KEY.copy()
    forward(values, 100, keys)
    np.testing.assert_array_equal(values, np.arange(100))
    np.testing.assert_array_equal(keys, KEY)


def test_keys_differ_between_seeds_epochs_and_purposes() -> None:
    seeds = [0, 1, -1, 2, 12, 2**64, 2**64 + 1, -(2**64) + 1, 10**40]
    keys = {
        int(epoch_key(seed, epoch, purpose)[0])
        for seed in seeds
        for epoch in (0, 1, 2, 3, 23)
        for purpose in ("shuffle", "blocks", "windows")
    }
    assert len(keys) == len(seeds) * 5 * 3


# These values must never change: a resumed run would get different data.
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, [0]),
        (2, [0]),
        (5, [0, 1, 2]),
        (16, [13, 8, 0, 1, 12]),
        (100, [49, 61, 60, 54, 5]),
        (1000, [488, 567, 870, 808, 384]),
        (4096, [3616, 369, 3450, 1169, 2280]),
        (65537, [8740, 49155, 37438, 34666, 4831]),
        (1000000, [81680, 367972, 806190, 428737, 607526]),
        (1000000000, [410949011, 511400390, 708884116, 473606679, 752879124]),
        (4294967297, [3996482782, 1592644808, 959613361, 3855792361, 3157544751]),
        (
            1000000000000000000,
            [
                390552110938706932,
                420240811814556472,
                876069338500540764,
                631035664308739211,
                485973268761986637,
            ],
        ),
        (
            4611686018427387904,
            [
                4456275946046430783,
                1441282391836803908,
                432031097645514520,
                4119700342496540496,
                3778616355649985738,
            ],
        ),
    ],
)
def test_permutation_never_changes(size: int, expected: list[int]) -> None:
    middle = np.arange(size // 2, min(size // 2 + 5, size), dtype=np.uint64)
    assert forward(middle, size, KEY).tolist() == expected


def test_keys_never_change() -> None:
    assert [int(epoch_key(seed, 3, "test")[0]) for seed in (0, -1, 10**30)] == [
        676854559762075284,
        5113351030998237257,
        11486133262020595651,
    ]
    assert derive_keys(KEY, np.arange(3, dtype=np.uint64)).tolist() == [
        8764124137247636340,
        14231891597627818567,
        8087291527353957517,
    ]
