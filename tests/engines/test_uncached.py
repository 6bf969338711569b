"""Whole chunks of arrays much larger than the cache: decoded into the batch, each once a read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.box import Extent
from oocdata.engines import cache as caches
from oocdata.engines.cache import cache
from oocdata.errors import DamagedChunkError
from oocdata.testing import boxes_of
from tests.counting import counted

_ROWS, _ROOM = 200, 20
"""Chunks of the array, and of the cache."""


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache for few chunks, which are large however small they are."""
    cache.forget()
    monkeypatch.setattr(caches, "_UNCACHED_BYTES", 1)
    monkeypatch.setattr(cache, "budget", lambda: _ROOM * 96)
    yield
    cache.forget()


def array() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(_ROWS, 3, 4))


def test_a_shuffle_decodes_each_chunk_once_and_caches_none() -> None:
    stored = array()
    view, decoded = counted(stored, 1, 3, 4)
    loader = view.batches(8, shuffle=True)
    for epoch in range(3):
        for step, batch in enumerate(loader.epoch(epoch, parallel=1)):
            assert (batch == stored[loader.positions(step, epoch)]).all()
    assert decoded == Counter({(row, 0, 0): 3 for row in range(_ROWS)})
    assert cache.nbytes == 0


@given(st.data())
def test_boxes_equal_numpy_and_repeats_are_decoded_once(data: st.DataObject) -> None:
    stored = array()
    view, decoded = counted(stored, 1, 3, 4)
    rows = np.array(data.draw(st.lists(st.integers(0, _ROWS - 1), min_size=1, max_size=40)))
    dtype = data.draw(st.sampled_from(["f8", "f4"]))
    layout = data.draw(st.sampled_from("CF"))
    out = np.full((len(rows) + 5, 3, 4), -1, dtype, order=layout)
    places = np.array(data.draw(st.permutations(range(len(out)))))[: len(rows)]
    origins = np.stack([rows, 0 * rows, 0 * rows], axis=1)
    view.source.read_to(origins, Extent.of((1, 3, 4)), out[:, None], places)
    expected = np.full(out.shape, -1, dtype)
    expected[places] = boxes_of(stored, origins, Extent.of((1, 3, 4)))[:, 0]
    assert (out == expected).all()
    assert decoded == Counter({(row, 0, 0): 1 for row in rows.tolist()})


def test_pairs_in_order_are_cached_from_the_second_batch_on() -> None:
    view, decoded = counted(array(), 1, 3, 4)
    pairs = ooc.zip(view[:-1], view[1:]).batches(10)
    for _ in pairs.epoch(0, parallel=1):
        pass
    # The first batch is read twice: nobody knew that its chunks would come again.
    assert sum(decoded.values()) <= _ROWS + 10


def test_chunks_that_come_again_and_again_are_cached() -> None:
    view, decoded = counted(array(), 1, 3, 4)
    random = np.random.default_rng(1)
    for _ in range(100):
        few, all_rows = random.integers(0, 5, 8), random.integers(0, _ROWS, 8)
        view.take(np.where(random.random(8) < 0.5, few, all_rows))
    # They were drawn 400 times.
    assert sum(decoded[row, 0, 0] for row in range(5)) < 40


def test_chunks_of_an_array_that_fits_are_cached() -> None:
    view, decoded = counted(array()[:_ROOM], 1, 3, 4)
    for epoch in range(3):
        for _ in view.batches(4, shuffle=True).epoch(epoch):
            pass
    assert set(decoded.values()) == {1}


def test_rows_of_several_chunks_go_into_the_batch(tmp_path) -> None:
    stored = np.random.default_rng(0).integers(0, 9, (_ROWS, 6, 8))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=stored, chunks=(1, 3, 4), compression="gzip")
    loader = ooc.open(tmp_path / "a.h5", "u").batches(8, shuffle=True)
    for step, batch in enumerate(loader.epoch(0)):
        assert (batch == stored[loader.positions(step, 0)]).all()
    assert cache.nbytes == 0


def test_a_damaged_chunk_is_named(tmp_path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("u", (_ROWS, 3, 4), chunks=(1, 3, 4), compression="gzip")
        data[...] = array()
        place = data.id.get_chunk_info(17).byte_offset
    with open(tmp_path / "a.h5", "r+b") as file:
        file.seek(place)
        file.write(b"\0\0\0\0")
    view = ooc.open(tmp_path / "a.h5", "u")
    with pytest.raises(DamagedChunkError) as caught:
        view.take([3, 17, 5])
    assert list(caught.value.rows) == [17]
    assert caught.value.key == "/u"
    assert cache.nbytes == 0


@given(st.data())
def test_windows_of_whole_chunks_equal_numpy(data: st.DataObject) -> None:
    stored = np.random.default_rng(0).normal(size=(2 * _ROWS, 6, 4))
    view, decoded = counted(stored, 2, 3, 4)
    extent = Extent.of((2 * data.draw(st.integers(1, 3)), 3 * data.draw(st.integers(1, 2)), 4))
    boxes = st.tuples(
        st.integers(0, _ROWS - 3).map(lambda n: 2 * n),
        st.sampled_from([0, 3] if extent.lengths[1] == 3 else [0]),
        st.just(0),
    )
    origins = np.array(data.draw(st.lists(boxes, min_size=1, max_size=9)))
    out = np.zeros((len(origins), *extent.lengths))
    view.source.read(origins, extent, out)
    assert (out == boxes_of(stored, origins, extent)).all()
    assert set(decoded.values()) == {1}
