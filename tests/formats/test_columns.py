"""Test that arrays whose columns are named in another order are not joined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from anndata_files import random_csr, write_genes, write_matrix
from numpy.testing import assert_array_equal
from servers.ranges import RangeServer

import oocdata as ooc
from oocdata.errors import ArgumentError, MismatchedPartsError, UnknownFormatError
from oocdata.formats import anndata

GENES = [f"gene {number}" for number in range(30)]
SWAPPED = [*GENES[:4], GENES[5], GENES[4], *GENES[6:]]
MATRIX = random_csr(40, 30, 0.3)
DENSE = MATRIX.toarray()
ORDER = np.array([SWAPPED.index(name) for name in GENES])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the file of each list of names that is read."""
    paths: list[str] = []
    usual = anndata._index

    def index(path: str, table: str) -> Any:
        paths.append(Path(path).name)
        return usual(path, table)

    monkeypatch.setattr(anndata, "_index", index)
    return paths


def group_in(path: Path, name: str = "", **options: Any) -> Any:
    """Return a group of a file that is opened for writing; `close` closes it."""
    file: Any = h5py.File(path, "a") if path.suffix != ".zarr" else zarr.open_group(path, **options)
    return file.require_group(name) if name else file


def close(group: Any) -> None:
    if isinstance(group, h5py.Group):
        group.file.close()


def write(
    path: Path, key: str, genes: Sequence[str] | None, *, dense: bool, index: str = "_index",
    **options: Any,
) -> str:  # fmt: skip
    """Write an array of genes at a key, with `var` where AnnData has it."""
    parent, _, name = key.rpartition("/")
    group = group_in(path, parent.removesuffix("layers").strip("/"), **options)
    if genes is not None:
        write_genes(group, genes, index)
    holder = group.require_group("layers") if "layers" in parent else group
    if not dense:
        write_matrix(holder, name, MATRIX)
    elif isinstance(holder, h5py.Group):
        holder[name] = DENSE
    else:
        holder.create_array(name, data=DENSE, chunks=(7, 30))
    close(group)
    return str(path)


@pytest.mark.parametrize(
    ("suffix", "options", "key", "dense"),
    [
        ("h5ad", {}, "X", True),
        ("h5ad", {}, "X", False),
        ("h5ad", {}, "layers/counts", True),
        ("h5ad", {}, "mod/rna/X", False),
        ("zarr", {"zarr_format": 2}, "X", False),
        ("zarr", {"zarr_format": 2}, "raw/X", True),
        ("zarr", {"zarr_format": 3}, "X", True),
        ("zarr", {"zarr_format": 3}, "layers/counts", False),
    ],
)
def test_files_of_other_columns_are_refused(
    tmp_path: Path, reads: list[str], key: str, dense: bool, suffix: str, options: dict[str, Any]
) -> None:
    genes = {"a": GENES, "b": GENES, "c": SWAPPED, "d": [*GENES[:29], "another"]}
    paths = {
        name: write(
            tmp_path / f"{name}.{suffix}", key, each, dense=dense, index="gene_ids", **options
        )
        for name, each in genes.items()
    }
    both = ooc.open([paths["a"], paths["b"]], key)
    assert reads == [f"a.{suffix}", f"b.{suffix}"]
    assert_array_equal(np.asarray(both), np.concatenate([DENSE, DENSE]))
    reads.clear()
    with pytest.raises(MismatchedPartsError) as raised:
        ooc.open([paths[name] for name in "abcd"], key)
    name = both.storage.key
    where = f"in '{paths['a']}' ({name}) and 'gene 5' in '{paths['c']}' ({name})"
    assert f"column 4 is 'gene 4' {where}" in str(raised.value)
    assert len(reads) == 3
    with pytest.raises(MismatchedPartsError, match=r"column 29 is 'gene 29' .* and 'another'"):
        ooc.open(f"{tmp_path}/[abd].{suffix}", key)
    reads.clear()
    assert_array_equal(ooc.open(paths["c"], key).take([3]), DENSE[[3]])
    assert reads == []


def test_arrays_without_names_of_columns(tmp_path: Path, reads: list[str]) -> None:
    paths = [write(tmp_path / f"{number}.h5", "X", None, dense=True) for number in range(3)]
    assert len(ooc.open(paths, "X")) == 120
    assert reads == ["0.h5"]
    with h5py.File(paths[1], "a") as file:
        file["var"] = np.arange(30)  # no table
        file["U"] = DENSE
    assert len(ooc.open([paths[1], paths[0]], "X")) == 80


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_keys_of_one_file(tmp_path: Path, dense: bool) -> None:
    path = tmp_path / "a.h5"
    for number in range(3):
        write(path, f"run_{number}/X", SWAPPED if number == 2 else GENES, dense=dense)
    assert len(ooc.open(path, ["run_0/X", "run_1/X"])) == 80
    with pytest.raises(MismatchedPartsError, match=r"column 4 .*\(/run_0/X\) and .*\(/run_2/X\)"):
        ooc.open(path, "run_*/X")


def test_arrays_opened_by_their_own_paths(tmp_path: Path) -> None:
    for number, genes in enumerate((GENES, GENES, SWAPPED)):
        write(tmp_path / f"{number}.zarr", "X", genes, dense=True)
    paths = [tmp_path / f"{number}.zarr" / "X" for number in range(3)]
    assert len(ooc.open(paths[:2])) == 80
    with pytest.raises(MismatchedPartsError, match="column 4 is 'gene 4'"):
        ooc.open(paths)


def test_an_index_with_a_mask(tmp_path: Path) -> None:
    for number, genes in enumerate((GENES, SWAPPED)):
        with h5py.File(tmp_path / f"{number}.h5ad", "w") as file:
            file["X"] = DENSE
            write_genes(file, genes, "values")
            file.move("var/values", "var/_index/values")
            file["var"].attrs["_index"] = "_index"
            file["var/_index"].attrs["encoding-type"] = "nullable-string-array"
    with pytest.raises(MismatchedPartsError, match="column 4 is 'gene 4'"):
        ooc.open(f"{tmp_path}/*.h5ad", "X")


KINDS: dict[str, Any] = {
    "rows": lambda view: view,
    "windows": lambda view: view.windows(2, 1),
    "zipped": lambda view: ooc.zip({"y": view[:, 4], "x": view}),
    "filtered": lambda view: view.filter(np.arange(40) % 2 == 0),
    "cut": lambda view: view[:, 3:6],
    "a run chosen": lambda view: view[:, [4, 5, 6]],
    "reversed": lambda view: view[:, ::-1],
    "one": lambda view: view[:, 4],
    "joined": lambda view: ooc.concat([view, view]),
}


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_datasets_of_other_columns(tmp_path: Path, kind: str, dense: bool) -> None:
    paths = {
        name: write(tmp_path / f"{name}.h5", "X", genes, dense=dense)
        for name, genes in {"a": GENES, "b": SWAPPED, "c": GENES}.items()
    }
    one, other, same = (KINDS[kind](ooc.open(path, "X")) for path in paths.values())
    for call in (ooc.concat, lambda parts: ooc.mix([(part, 1) for part in parts])):
        assert len(call([one, same])) >= 40
        with pytest.raises(
            ArgumentError, match=r"'gene [045]' in .*a\.h5' .*'gene [45]' in .*b\.h5'"
        ):
            call([one, same, other])


def test_fewer_names_than_columns(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.h5", "X", GENES[:28], dense=True) for name in "ab"]
    views = [ooc.open(path, "X") for path in paths]
    for columns in (slice(None), slice(20, 30), 29, [29, 3]):
        assert len(ooc.concat([view[:, columns] for view in views])) == 80


@pytest.mark.parametrize("kind", [h5py.string_dtype(), np.dtype("S7")], ids=["varying", "fixed"])
@pytest.mark.parametrize("prefix", ["", "raw."])
def test_files_of_anndata_before_0_7(tmp_path: Path, prefix: str, kind: Any) -> None:
    """A table was one dataset of rows, with the index as its first field."""
    rows = np.dtype([("index", kind), ("n_cells", "i8")])
    paths = [str(tmp_path / f"{name}.h5ad") for name in "ab"]
    for path in paths:
        with h5py.File(path, "w") as file:
            file[f"{prefix}X"] = DENSE
            file[f"{prefix}var"] = np.array([(gene.encode(), 1) for gene in GENES], rows)
    assert_array_equal(ooc.open(paths[0], f"{prefix}X").take([1]), DENSE[[1]])
    with pytest.raises(UnknownFormatError, match=rf"saved anew.*dataset '/{prefix}var'"):
        ooc.open(paths, f"{prefix}X")


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
def test_columns_brought_into_one_order(tmp_path: Path, dense: bool) -> None:
    paths = [
        write(tmp_path / f"{name}.h5", "X", genes, dense=dense)
        for name, genes in {"a": GENES, "b": SWAPPED}.items()
    ]
    one, other = (ooc.open(path, "X") for path in paths)
    expected = np.concatenate([DENSE, DENSE[:, ORDER]])
    here, there = (np.asarray(ooc.open(path, "var/_index")).tolist() for path in paths)
    order = np.array([there.index(name) for name in here])
    ways = [other[:, order], other.map(lambda rows: rows[:, order])]
    for way in ways:
        assert_array_equal(ooc.concat([one, way]).take(range(80)), expected)
    # Selections of which the names are the same.
    assert_array_equal(ooc.concat([one[:, 6:], other[:, 6:]]).take([50]), DENSE[[10], 6:])
    assert_array_equal(ooc.concat([one[:, 4], other[:, 5]]).take([50]), DENSE[[10], 5])
    both = ooc.concat([one[:, [5, 2, 9]][:, 1:], other[:, [4, 2, 9]][:, 1:]])
    assert_array_equal(both.take([50]), DENSE[[10]][:, [2, 9]])
    if not dense:
        with pytest.raises(ArgumentError, match="column 2 is 'gene 4'"):
            ooc.concat([one[:, [9, 7, 4]], other[:, [9, 7, 4]]])
        assert_array_equal(ooc.concat([one, ways[0]]).sparse().take([45]).dense(), expected[[45]])


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_files_at_urls(tmp_path: Path, suffix: str) -> None:
    for number, genes in enumerate((GENES, GENES, SWAPPED)):
        write(tmp_path / f"{number}.{suffix}", "X", genes, dense=False)
    with RangeServer(tmp_path) as server:
        urls = [f"{server.url}/{number}.{suffix}" for number in range(3)]
        assert_array_equal(ooc.open(urls[:2], "X").take([41]), DENSE[[1]])
        with pytest.raises(MismatchedPartsError, match=r"'gene 5' in 'http.*/2\.") as raised:
            ooc.open(urls, "X")
        assert f"'{urls[0]}'" in str(raised.value)


def test_shorter_rows_are_padded(tmp_path: Path) -> None:
    for number, genes in enumerate((GENES, GENES[:28], SWAPPED[:29])):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w") as file:
            write_genes(file, genes)
            file["X"] = DENSE[:, : len(genes)]
    view = ooc.open([tmp_path / "1.h5", tmp_path / "0.h5"], "X", pad=0)
    assert_array_equal(view.take([0, 40]), [[*DENSE[0, :28], 0, 0], DENSE[0]])
    assert len(ooc.concat([view[:, [29, 3]], view[:, [29, 3]]])) == 160
    with pytest.raises(MismatchedPartsError, match="column 4 is 'gene 4'"):
        ooc.open([tmp_path / f"{number}.h5" for number in range(3)], "X", pad=0)


def test_rows_of_genes_need_no_names_of_columns(tmp_path: Path, reads: list[str]) -> None:
    paths = [
        write(tmp_path / f"{at}.h5", "X", genes, dense=True)
        for at, genes in enumerate((GENES, SWAPPED))
    ]
    for axis in (1, (0, 1)):
        views = [ooc.open(path, "X", axis=axis) for path in paths]
        assert len(ooc.concat(views)) in (60, 2400)
    assert ooc.open(paths, "X", axis=1).shape == (60, 40)
    assert reads == []
