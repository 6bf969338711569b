"""Test AnnData groups opened as one array, in h5ad and Zarr, with SciPy as the oracle."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from anndata_files import CELL_TYPES, random_csr, write_categories, write_file, write_matrix
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.blocks import ADDRESSABLE
from oocdata.describe import as_json, from_json
from oocdata.engines import files
from oocdata.errors import (
    ArgumentError,
    MismatchedPartsError,
    MissingKeyError,
    SeveralDatasetsError,
    UnknownFormatError,
)
from oocdata.formats.opening import list_datasets

MATRIX = random_csr(120, 30, 0.3)
DENSE = MATRIX.toarray()

FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "h5ad, contiguous": ("a.h5ad", {}),
    "h5ad, chunks as they are": ("a.h5ad", {"maxshape": (None,)}),
    "h5ad, gzip": ("a.h5ad", {"chunks": (50,), "compression": "gzip"}),
    "h5ad, lzf, indptr of 64 bits": ("a.h5ad", {"chunks": (50,), "compression": "lzf"}),
    "Zarr v3": ("a.zarr", {"chunks": (50,)}),
    "Zarr v2": ("a.zarr", {"chunks": (50,), "zarr_format": 2}),
    "Zarr v3, uncompressed": ("a.zarr", {"chunks": (50,), "compressors": None}),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {name: write(tmp_path_factory.mktemp("files"), name) for name in FILES}


def write(folder: Path, name: str) -> str:
    file, options = FILES[name]
    matrix = MATRIX.copy()
    if "64 bits" in name:
        matrix.indptr = matrix.indptr.astype("i8")
    return write_file(folder / file, matrix, **options)


@pytest.mark.parametrize("name", FILES)
def test_rows_are_those_of_the_matrix(written: dict[str, str], name: str) -> None:
    view = ooc.open(written[name], "X")
    assert (view.shape, view.dtype) == ((120, 30), np.dtype("f4"))
    assert_array_equal(np.asarray(view), DENSE)
    rows = np.random.default_rng(0).integers(0, 120, 40)
    assert_array_equal(view.take(rows), DENSE[rows])
    assert_array_equal(view[7], DENSE[7])
    assert_array_equal(np.asarray(view[:, 3:25:4]), DENSE[:, 3:25:4])
    assert_array_equal(np.asarray(view[::-2, [5, 29, 0]]), DENSE[::-2, [5, 29, 0]])
    storage = view.storage
    assert storage.layout.startswith(f"CSR, nnz {MATRIX.nnz:,} ({MATRIX.nnz / DENSE.size:.2%}); ")
    assert (storage.key or "").strip("/") == "X"


@pytest.fixture
def kernel_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of bytes of each call that reads runs."""
    reads: list[int] = []
    usual = files.read_runs

    def read_runs(file: Any, offsets: Any, places: Any, lengths: Any, out: Any) -> None:
        reads.append(int(np.sum(np.broadcast_to(lengths, offsets.shape))))
        usual(file, offsets, places, lengths, out)

    monkeypatch.setattr(files, "read_runs", read_runs)
    return reads


@pytest.mark.parametrize("name", ["h5ad, contiguous", "h5ad, chunks as they are"])
def test_uncompressed_rows_cost_their_own_bytes(
    tmp_path: Path, name: str, kernel_reads: list[int]
) -> None:
    view = ooc.open(write(tmp_path, name), "X")
    assert view.blocks == ADDRESSABLE
    view.take([0])  # the table of rows
    kernel_reads.clear()
    rows = np.random.default_rng(1).permutation(120)[:50]
    view.take(rows)
    stored = int(np.diff(MATRIX.indptr)[rows].sum())
    assert kernel_reads == [4 * stored, 4 * stored]


def test_labels_are_read_in_blocks(tmp_path: Path, kernel_reads: list[int]) -> None:
    labels = ooc.open(write(tmp_path, "h5ad, gzip"), "obs/cell_type")
    assert len(np.concatenate(list(labels.batches(10, shuffle=True)))) == 120
    assert len(kernel_reads) <= 1  # all codes are one small block


@pytest.mark.parametrize("name", FILES)
def test_a_loader_is_described_and_opened_again(written: dict[str, str], name: str) -> None:
    path = written[name]
    both = ooc.zip(ooc.open(path, "X")[:, [4, 2]], ooc.open(path, "obs/cell_type"))
    loader = both.batches(16, shuffle=True, seed=5)
    again = from_json(as_json(loader))
    for batch, other in zip(loader.epoch(1), again.epoch(1), strict=True):
        assert_array_equal(batch[0], other[0])
        assert_array_equal(batch[1], other[1])
    chosen = loader.positions(3)
    assert_array_equal(loader.batch(3)[0], DENSE[chosen][:, [4, 2]])
    assert_array_equal(loader.batch(3)[1], chosen % 4 - 1)


@pytest.mark.parametrize("name", ["h5ad, gzip", "Zarr v3", "Zarr v2"])
def test_codes_of_categories(written: dict[str, str], name: str) -> None:
    path = written[name]
    labels = ooc.open(path, "obs/cell_type")
    assert (labels.shape, labels.dtype) == ((120,), np.dtype("i1"))
    assert_array_equal(np.asarray(labels), np.arange(120) % 4 - 1)  # -1 is a missing value
    assert labels[10:20].categories == CELL_TYPES
    assert ooc.open(path, "obs/n_genes").categories == ()
    assert_array_equal(np.asarray(ooc.open(path, "obs/n_genes")), np.diff(MATRIX.indptr))


@pytest.mark.parametrize("name", ["h5ad, gzip", "Zarr v3", "Zarr v2"])
def test_a_group_that_is_one_array_is_listed_once(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name)
    names = [(one or "").strip("/") for one in list_datasets(path)]
    assert names == ["X", "obs/cell_type", "obs/n_genes"]
    with pytest.raises(SeveralDatasetsError, match="X"):
        ooc.open(path)


@pytest.mark.parametrize("key", ["sample_*/X", [f"sample_{at}/X" for at in (1, 2, 10)]])
@pytest.mark.parametrize("suffix", ["h5", "zarr"])
def test_matrices_of_several_keys(tmp_path: Path, suffix: str, key: Any) -> None:
    path = tmp_path / f"a.{suffix}"
    file: Any = h5py.File(path, "w") if suffix == "h5" else zarr.open_group(path, mode="w")
    for number, rows in {1: slice(30), 2: slice(30, 32), 10: slice(32, 120)}.items():
        group = file.create_group(f"sample_{number}")
        write_matrix(group, "X", MATRIX[rows])
        write_categories(group, "type", (np.arange(120)[rows] % 3).astype("i1"))
    if suffix == "h5":
        file.close()
    view = ooc.open(str(path), key)
    rows = np.random.default_rng(1).permutation(120)
    assert_array_equal(view.take(rows), DENSE[rows])
    assert_array_equal(view.sparse().take(rows).dense(), DENSE[rows])
    assert_array_equal(np.asarray(view.named(["sample_10"])), DENSE[32:])
    chosen = view[:, [9, 3]]
    assert_array_equal(chosen.sparse().take(rows).dense(), DENSE[rows][:, [9, 3]])
    assert len(chosen.parts) == 3
    assert len(chosen.windows(2)) == 29 + 1 + 87  # each is an episode
    again = from_json(as_json(chosen.batches(16, shuffle=True, seed=4)))
    assert_array_equal(again.batch(2), DENSE[again.positions(2)][:, [9, 3]])
    types = ooc.open(str(path), "sample_*/type")
    assert types.categories == CELL_TYPES
    assert_array_equal(np.asarray(types), np.arange(120) % 3)
    with pytest.raises(MissingKeyError, match=r"The file holds: 'sample_\*/X'"):
        ooc.open(str(path), "sample_*")


def test_categories_that_differ_between_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for number in (0, 1):
            write_categories(file, f"type_{number}", np.arange(3).astype("i1"))
        file["type_1/categories"][:2] = ["T cell", "B cell"]
    assert ooc.open(path, "type_1").categories == ("T cell", "B cell", CELL_TYPES[2])
    with pytest.raises(MismatchedPartsError, match="same in all parts"):
        ooc.open(path, "type_*")
    codes = [ooc.open(path, f"type_{number}") for number in (0, 1)]
    with pytest.raises(ArgumentError, match=r"another the categories .*'T cell', 'B cell'"):
        ooc.concat([ooc.zip(part, ooc.open(np.zeros(3))) for part in codes])
    with pytest.raises(ArgumentError, match="`mix`"):
        ooc.mix(dict.fromkeys(codes, 0.5))
    common = np.array([1, 0, 2], "i1")  # type_1's codes, by the names of type_0
    for mapped in (codes[1].map(lambda batch: common[batch]), ooc.open(common)):
        both = ooc.concat([codes[0], mapped])
        assert_array_equal(both.take(range(6)), [0, 1, 2, 1, 0, 2])


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_the_only_one_needs_no_key(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    file = h5py.File(path, "w") if suffix == "h5ad" else zarr.open_group(path, mode="w")
    write_matrix(file, "layers/counts", MATRIX)
    if suffix == "h5ad":
        file.close()
    view = ooc.open(str(path))
    assert_array_equal(view.take([3, 99]), DENSE[[3, 99]])


def test_a_matrix_at_the_root(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    write_matrix(root, "X", MATRIX)
    assert_array_equal(np.asarray(ooc.open(str(tmp_path / "a.zarr" / "X"))), DENSE)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs.update({"encoding-type": "csr_matrix", "shape": MATRIX.shape})
        for part in ("data", "indices", "indptr"):
            file[part] = getattr(MATRIX, part)
    assert_array_equal(np.asarray(ooc.open(str(tmp_path / "a.h5"))), DENSE)


def test_a_file_of_h5sparse(tmp_path: Path) -> None:
    """As AnnData wrote before 0.7."""
    path = tmp_path / "old.h5ad"
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs.update({"h5sparse_format": np.bytes_("csr"), "h5sparse_shape": MATRIX.shape})
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(MATRIX, part)
    with pytest.raises(UnknownFormatError, match=r"before 0\.7 must be saved anew"):
        ooc.open(str(path), "X")


def test_files_with_the_same_genes_are_one_array(tmp_path: Path) -> None:
    for number in range(3):
        part = MATRIX[number * 40 : number * 40 + 40]
        write_file(tmp_path / f"part{number}.h5ad", part, chunks=(20,), compression="gzip")
    view = ooc.open(f"{tmp_path}/part*.h5ad", "X")
    assert_array_equal(np.asarray(view), DENSE)
    few = view[:, [1, 0]]
    assert_array_equal(few.take([100, 3, 50]), DENSE[[100, 3, 50]][:, [1, 0]])
    assert_array_equal(few.sparse().take([100, 3, 50]).dense(), DENSE[[100, 3, 50]][:, [1, 0]])
    loader = few.batches(10, shuffle=True)
    assert_array_equal(from_json(as_json(loader)).batch(2), loader.batch(2))


def test_by_columns_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    with h5py.File(path, "w") as file:
        write_matrix(file, "X", MATRIX.tocsc())
    with pytest.raises(UnknownFormatError, match=r"by columns.*tocsr\(\).*'/X'"):
        ooc.open(str(path), "X")
    # The arrays of the group can still be opened, and a check reads them.
    assert list_datasets(str(path)) == ["/X/data", "/X/indices", "/X/indptr"]
    assert ooc.check(str(path)).findings == ()


def test_numbers_with_a_mask_are_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    with h5py.File(path, "w") as file:
        group = file.create_group("obs/age")
        group.attrs["encoding-type"] = "nullable-integer"
        group["values"], group["mask"] = np.arange(6), np.arange(6) % 3 == 0
    with pytest.raises(UnknownFormatError, match="obs/age/values' and '/obs/age/mask'"):
        ooc.open(str(path), "obs/age")


def test_other_axes_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "h5ad, gzip")
    with pytest.raises(ArgumentError, match="`axis` must be 0"):
        ooc.open(path, "X", axis=1)


@pytest.mark.parametrize("shape", [None, [3], [-1, 4], "many"])
def test_a_shape_that_is_none(tmp_path: Path, shape: Any) -> None:
    path = write(tmp_path, "h5ad, gzip")
    with h5py.File(path, "r+") as file:
        del file["X"].attrs["shape"]
        if shape is not None:
            file["X"].attrs["shape"] = shape
    with pytest.raises(UnknownFormatError, match="`shape` of two lengths"):
        ooc.open(path, "X")


def test_an_external_link_is_not_followed_to_see_what_it_is(tmp_path: Path) -> None:
    write(tmp_path, "h5ad, gzip")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["X"] = h5py.ExternalLink("a.h5ad", "X")
    with pytest.raises(ooc.errors.ExternalDataError):
        ooc.open(str(tmp_path / "b.h5"), "X")


def test_commands_take_it(tmp_path: Path) -> None:
    path = write(tmp_path, "h5ad, gzip")
    assert ooc.check(path).findings == ()
    assert float(np.mean(ooc.stats(path, "X").mean)) == pytest.approx(DENSE.mean())
    ooc.convert(path, str(tmp_path / "b.npy"), key="X", progress=False)
    assert_array_equal(np.load(tmp_path / "b.npy"), DENSE)


def test_a_file_that_anndata_wrote(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    pandas = pytest.importorskip("pandas")
    obs = pandas.DataFrame({"cell_type": pandas.Categorical([*"abac"] * 30)})
    obs.index = obs.index.astype(str)
    made = anndata.AnnData(MATRIX, obs=obs, layers={"twice": MATRIX * 2})
    for version in (2, 3):
        # With pandas 3, names are texts with a mask.
        settings = {"zarr_write_format": version, "allow_write_nullable_strings": True}
        with warnings.catch_warnings(action="ignore"), anndata.settings.override(**settings):
            made.write_zarr(tmp_path / f"{version}.zarr")
            made.write_h5ad(tmp_path / "a.h5ad")
            made[:, ::-1].write_h5ad(tmp_path / "b.h5ad")
    for name in ("a.h5ad", "2.zarr", "3.zarr"):
        path = str(tmp_path / name)
        assert_array_equal(np.asarray(ooc.open(path, "layers/twice")), DENSE * 2)
        labels = ooc.open(path, "obs/cell_type")
        assert [labels.categories[code] for code in np.asarray(labels)[:4]] == [*"abac"]
    with pytest.raises(MismatchedPartsError, match=r"column 0 is '0' in .* and '29' in"):
        ooc.open(f"{tmp_path}/*.h5ad", "X")


@pytest.mark.parametrize(
    "tool", [ooc.stats, ooc.preview, ooc.bench, ooc.check], ids=lambda t: t.__name__
)
def test_tools_ask_for_dense_rows(tmp_path: Path, tool: Any) -> None:
    write_file(tmp_path / "cells.h5ad", random_csr(20, 6))
    with pytest.raises(ArgumentError, match="`target` must have dense rows"):
        tool(ooc.open(tmp_path / "cells.h5ad", "X").sparse())
