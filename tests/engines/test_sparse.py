"""Sparse rows as dense boxes, compared with SciPy; counts decoded chunks."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from anndata_files import random_csr, write_file
from counting import Decoder
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata import choice
from oocdata.blocks import ADDRESSABLE, Blocks
from oocdata.box import Extent
from oocdata.cost import amplification, chunk_bytes
from oocdata.datasets.view import View
from oocdata.engines import sparse
from oocdata.engines.chunked import Chunked
from oocdata.engines.columns import is_sparse, read_entries, select_columns
from oocdata.engines.concat import concatenate
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Storage
from oocdata.engines.sparse import SparseRows
from oocdata.errors import ArgumentError, SourceError
from oocdata.testing import boxes_of


def source_of(matrix: Any) -> SparseRows:
    arrays = [MemoryArray(getattr(matrix, name)) for name in ("data", "indices", "indptr")]
    return SparseRows(*arrays, matrix.shape, Storage("CSR in memory"))


def counted(matrix: Any, chunk: int) -> tuple[SparseRows, list[Counter[tuple[int, ...]]]]:
    """Return a source that counts the chunks it decodes, of `data` and of `indices`."""
    decoded: list[Counter[tuple[int, ...]]] = [Counter(), Counter()]
    arrays = [
        Chunked(Decoder(array, (chunk,), count))
        for array, count in zip((matrix.data, matrix.indices), decoded, strict=True)
    ]
    indptr = MemoryArray(matrix.indptr)
    return SparseRows(*arrays, indptr, matrix.shape, Storage("CSR")), decoded


@st.composite
def matrices(draw: st.DrawFn) -> Any:
    """Any CSR matrix: empty rows, no rows, unsorted and duplicate columns."""
    rows, columns = draw(st.integers(0, 8)), draw(st.integers(1, 7))
    lengths = [draw(st.integers(0, 9)) for _ in range(rows)]
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype(draw(st.sampled_from(["i4", "i8"])))
    count = int(indptr[-1])
    indices = draw(st.lists(st.integers(0, columns - 1), min_size=count, max_size=count))
    values = draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count))
    kind = draw(st.sampled_from(["f4", "f8", "i1", "u2", "?", "c8"]))
    data = np.array(values, "i8").astype(kind)
    return sp.csr_matrix((data, np.array(indices, "i4"), indptr), (rows, columns))


@settings(max_examples=60)
@given(st.data())
def test_any_matrix_any_boxes(data: st.DataObject) -> None:
    matrix = data.draw(matrices())
    source, dense = source_of(matrix), matrix.toarray()
    assert (source.shape, source.dtype) == (dense.shape, dense.dtype)
    if not len(dense):
        return
    lengths = tuple(data.draw(st.integers(1, n)) for n in dense.shape)
    strides = tuple(
        data.draw(st.integers(1, (n - 1) // (length - 1))) if length > 1 else 1
        for n, length in zip(dense.shape, lengths, strict=True)
    )
    extent = Extent(lengths, strides)
    place = st.tuples(
        *[st.integers(0, n - s) for n, s in zip(dense.shape, extent.spans, strict=True)]
    )
    origins = np.array(data.draw(st.lists(place, min_size=1, max_size=6)))
    dtype = (
        dense.dtype if dense.dtype.kind == "c" else data.draw(st.sampled_from(["f8", dense.dtype]))
    )
    wide = np.full((len(origins), lengths[1], lengths[0], 2), 7, dtype)
    out = data.draw(
        st.sampled_from(
            [
                wide[..., 0].transpose(0, 2, 1),
                np.full_like(wide[..., 0], 7).reshape(len(origins), *lengths),
            ]
        )
    )
    source.read(origins, extent, out)
    assert_array_equal(out, boxes_of(dense, origins, extent).astype(dtype))


@settings(max_examples=60)
@given(st.data())
def test_any_entries_of_any_columns(data: st.DataObject) -> None:
    matrix = data.draw(matrices())
    dense = matrix.toarray()
    columns = np.array(data.draw(st.permutations(range(dense.shape[1]))))
    columns = columns[: data.draw(st.integers(1, len(columns)))]
    half = len(dense) // 2
    parts = [source_of(matrix[:half]), source_of(matrix[half:])]
    source = select_columns(concatenate(parts, 0), columns)
    assert source is not None
    assert is_sparse(source)
    again = select_columns(source, np.arange(len(columns))[::-1])
    assert again is not None
    assert again.shape == (len(dense), len(columns))
    rows = np.array(
        data.draw(st.lists(st.integers(0, len(dense) - 1), max_size=9)) if len(dense) else [], int
    )
    origins = np.stack([rows, np.zeros_like(rows)], axis=1)
    for one, expected in ((source, dense[:, columns]), (again, dense[:, columns[::-1]])):
        found = read_entries(one, origins, Extent.of((1, len(columns))))
        made = np.zeros((len(rows), len(columns)), dense.dtype)
        places = found.rows() * len(columns) + found.columns
        assert (np.diff(places) > 0).all()  # ascending without duplicates, as TensorFlow requires
        made.reshape(-1)[places] = found.values
        assert len(found.counts) == len(rows)
        assert_array_equal(made, expected[rows])


@pytest.mark.parametrize("dtypes", [("u8", "i4"), ("u4", "i4"), ("u8", "u1")])
def test_columns_of_any_whole_dtype(dtypes: tuple[str, str]) -> None:
    matrix, dense = random_csr(50, 40, 0.9), random_csr(50, 40, 0.9).toarray()
    parts = []
    for rows, dtype in zip((slice(30), slice(30, None)), dtypes, strict=True):
        part = matrix[rows]
        arrays = (part.data, part.indices.astype(dtype), part.indptr)
        parts.append(SparseRows(*map(MemoryArray, arrays), part.shape, Storage("CSR")))
    rows = np.random.default_rng(0).permutation(50)
    view = View.of(concatenate(parts, 0))
    assert_array_equal(view.take(rows), dense[rows])
    assert_array_equal(view.sparse().take(rows).dense(), dense[rows])


def test_no_column_is_chosen_twice() -> None:
    with pytest.raises(ArgumentError, match="once each"):
        select_columns(source_of(random_csr(5, 4)), np.array([1, 1]))


@pytest.mark.parametrize("most", [1, 7, 100])
def test_reading_few_numbers_at_a_time_gives_the_same(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(sparse, "_ENTRIES", most)
    matrix = random_csr(60, 30, 0.5)
    rows, out = np.random.default_rng(0).integers(0, 60, 90), np.full((90, 1, 30), 7, "f4")
    source_of(matrix).read(rows[:, None] * (1, 0), Extent.of((1, 30)), out)
    assert_array_equal(out[:, 0], matrix.toarray()[rows])


def test_a_batch_reads_each_array_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python for each row."""
    calls = Counter()
    usual = sparse.read_ragged

    def counting(source: Any, *arguments: Any) -> None:
        calls[id(source)] += 1
        usual(source, *arguments)

    monkeypatch.setattr(sparse, "read_ragged", counting)
    source = source_of(random_csr(500, 30))
    View.of(source).take(np.random.default_rng(0).permutation(500))
    assert calls == {id(source.data): 1, id(source.indices): 1}


@pytest.mark.parametrize("chunk", [50, 64])
def test_a_block_shuffle_decodes_each_chunk_about_once(chunk: int) -> None:
    matrix = random_csr(4000, 60, 0.2)
    source, decoded = counted(matrix, chunk)
    loader = View.of(source).batches(40, shuffle="block", seed=1)
    total = sum(batch.astype("f8").sum(axis=0) for batch in loader)
    assert_array_equal(total, matrix.toarray().astype("f8").sum(axis=0))
    chunks = -(-matrix.nnz // chunk)
    for count in decoded:
        assert len(count) == chunks  # all of them
        assert sum(count.values()) == chunks  # all are cached


def test_chunks_that_do_not_fit_are_decoded_little_more_than_once() -> None:
    matrix = random_csr(30_000, 60, 0.2)
    chunk = 2048
    source, decoded = counted(matrix, chunk)
    before = ooc.memory_limit()
    ooc.set_memory(1 << 20)
    try:
        blocks = View.of(source).blocks
        assert isinstance(blocks, Blocks)
        order = ooc.BlockShuffle(8 * blocks.length, 2)
        loader = View.of(source).batches(40, shuffle=order, seed=1)
        seen = sum(len(batch) for batch in loader.epoch(0, parallel=1))
    finally:
        ooc.set_memory(before)
    assert seen == 30_000
    chunks = -(-matrix.nnz // chunk)
    for count in decoded:
        assert len(count) == chunks
        assert chunks < sum(count.values()) < 1.35 * chunks


def test_ranks_decode_their_share() -> None:
    matrix = random_csr(4000, 60, 0.2)
    chunks = -(-matrix.nnz // 64)
    rows = []
    for rank in range(4):
        source, (decoded, _) = counted(matrix, 64)
        loader = View.of(source).batches(40, shuffle="block", seed=1).shard(4, rank)
        rows += [row.tobytes() for batch in loader for row in batch]
        assert sum(decoded.values()) < 0.4 * chunks
    assert Counter(rows) == Counter(row.tobytes() for row in matrix.toarray())


def test_chunks_are_the_average_rows_of_one() -> None:
    source, _ = counted(random_csr(4000, 60, 0.2), 64)
    storage = source.storage()
    mean = source.data.shape[0] / 4000
    assert storage.chunks == (round(64 / mean), 60)
    assert chunk_bytes(source, storage) == storage.chunk_bytes == 64 * (4 + 4)
    assert storage.table_bytes == 8 * 4001
    longer, _ = counted(random_csr(40, 60, 0.8), 2)
    assert longer.storage().chunks == (1, 60)  # a row has several
    assert View.of(longer).blocks == ADDRESSABLE


def test_a_block_is_a_run_of_chunks_because_neighbours_share_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "WINDOW_BYTES", 64 * 8 * 300)
    source, _ = counted(random_csr(20_000, 60, 0.2), 64)
    view = View.of(source)
    loader = view.batches(40, shuffle=True)
    assert isinstance(loader.order, ooc.BlockShuffle)
    assert isinstance(loader.order.blocks, Blocks)
    assert isinstance(view.blocks, Blocks)
    assert loader.order.blocks.length == 16 * view.blocks.length
    assert amplification(loader) == pytest.approx(1, abs=0.1)
    assert amplification(view.batches(40, shuffle="global")) < 2 * view.blocks.length


WAYS_OF_PARTS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda parts: View.of(concatenate(parts, 0)),
    "sparse": lambda parts: View.of(concatenate(parts, 0)).sparse(),
    "columns": lambda parts: ooc.concat([View.of(part)[:, [9, 3, 500]] for part in parts]),
}
FEW_BLOCKS = ooc.BlockShuffle(8, 20, lanes=4)


# Rows have 150 numbers on average.
@pytest.mark.parametrize(
    ("way", "order", "chunk"),
    [
        ("dense", "global", 100),
        ("dense", FEW_BLOCKS, 250),
        ("sparse", "global", 250),
        ("sparse", FEW_BLOCKS, 100),
        ("columns", "global", 100),
        ("columns", FEW_BLOCKS, 250),
    ],
)
def test_the_estimate_counts_chunks_of_both_arrays(way: str, order: Any, chunk: int) -> None:
    matrix = random_csr(2000, 600, 0.5)
    halves = [counted(matrix[rows], chunk) for rows in (slice(750), slice(750, None))]
    parts, counts = zip(*halves, strict=True)
    before = ooc.memory_limit()
    ooc.set_memory(1 << 20)
    try:
        loader = WAYS_OF_PARTS[way](parts).batches(40, shuffle=order, seed=3)
        estimate = amplification(loader)
        for _ in loader.epoch(0, parallel=1):
            pass
    finally:
        ooc.set_memory(before)
    decoded = sum(count.total() for pair in counts for count in pair) * chunk * 4
    assert estimate == pytest.approx(decoded / (8 * matrix.nnz), rel=0.05)


def test_addressable_rows_have_no_chunks() -> None:
    assert source_of(random_csr(40, 6)).storage().chunks is None


@pytest.mark.parametrize("indptr", [[1, 2, 4], [0, 3, 2], [0, 2, 3], [0, -1, 4]])
def test_an_invalid_indptr(indptr: list[int]) -> None:
    arrays = [MemoryArray(np.array(one)) for one in ([1.0] * 4, [0, 1, 0, 1], indptr)]
    source = SparseRows(*arrays, (2, 2), Storage("CSR", path="a.h5ad", key="X"))
    with pytest.raises(SourceError, match=r"`indptr` that ascends from 0 to 4.*'X'"):
        View.of(source).take([0])


@pytest.mark.parametrize("wrong", [-1, 2, 2**33])
def test_an_invalid_column_is_reported_with_its_row(wrong: int) -> None:
    arrays = [MemoryArray(np.array(one)) for one in ([1.0] * 4, [0, 1, 0, wrong], [0, 2, 4])]
    view = View.of(SparseRows(*arrays, (2, 2), Storage("CSR", path="a.h5ad")))
    assert view[0].tolist() == [1, 1]
    with pytest.raises(SourceError, match=rf"within \[0, 2\); got {wrong}.*row 1"):
        view.take([1])


@pytest.mark.parametrize("lengths", [(4, 3, 3), (4, 4, 4)])
def test_arrays_of_inconsistent_lengths(lengths: tuple[int, ...]) -> None:
    arrays = [MemoryArray(np.zeros(n, "i4")) for n in lengths]
    with pytest.raises(SourceError, match="of one length, and 3 `indptr`"):
        SparseRows(*arrays, (2, 2), Storage("CSR"))


def test_a_damaged_chunk_is_reported_with_its_rows(tmp_path: Path) -> None:
    matrix = random_csr(200, 40, 0.5)
    path = write_file(tmp_path / "a.h5ad", matrix, chunks=(100,), compression="gzip")
    with h5py.File(path) as file:
        info = file["X/data"].id.get_chunk_info(3)
    with open(path, "r+b") as raw:
        raw.seek(info.byte_offset)
        raw.write(b"\0" * info.size)
    lying = np.flatnonzero(
        (matrix.indptr[:-1] < 400) & (matrix.indptr[1:] > 300) & (np.diff(matrix.indptr) > 0)
    )
    view = ooc.open(path, "X")
    fine = np.setdiff1d(np.arange(200), lying)
    assert_array_equal(view.take(fine), matrix.toarray()[fine])
    with pytest.raises(SourceError) as raised:
        view.take([199, lying[0], 0])
    assert raised.value.rows == (lying[0],)
    assert raised.value.count == 1
    assert raised.value.key == "/X/data"


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.h5ad", random_csr(50, 8), chunks=(20,), compression="gzip")
    view = ooc.open(path, "X")
    view.take([0])
    with h5py.File(path, "r+") as file:
        file["X/data"][0] = 5
    with pytest.raises(SourceError, match="chang"):
        view.take([1])


def test_a_source_is_pickled_without_its_tables(tmp_path: Path) -> None:
    matrix = random_csr(5000, 8)
    view = ooc.open(write_file(tmp_path / "a.h5ad", matrix), "X")[:, [3, 1]]
    view.take([0])
    text = pickle.dumps(view)
    assert len(text) < 5000
    assert_array_equal(pickle.loads(text).take([4]), matrix.toarray()[[4]][:, [3, 1]])
