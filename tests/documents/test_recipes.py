"""Each page of docs/recipes runs on files of its layout, and gives the values that h5py reads.

The blocks of a page run one after another in a folder with such files. Shapes in comments are
compared with the batches, and variables of the blocks are checked here.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import layout_files as made
import numpy as np
import pytest
import zarr

from oocdata.tools.info.layouts import LAYOUTS

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"


def write_pdebench(folder: Path) -> None:
    made.write_pdebench_cfd(folder)
    made.write_pdebench_tensor(folder)
    made.write_pdebench_darcy(folder)
    made.write_pdebench_seeds(folder, rows=12)
    made.write_pdebench_incompressible(folder)


def write_aloha(folder: Path) -> None:
    made.write_aloha(folder)
    (folder / "jpeg").mkdir()
    made.write_aloha(folder / "jpeg", compress=True)


def write_dlio(folder: Path) -> None:
    made.write_dlio(folder)
    (folder / "hdf5").mkdir()
    made.write_dlio(folder / "hdf5", kind="hdf5")


def write_fastmri(folder: Path) -> None:
    made.write_fastmri(folder)
    made.write_fastmri(folder, test=True)


def write_robomimic(folder: Path) -> None:
    made.write_robomimic(folder, compress=True)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "well": made.write_well, "pdebench": write_pdebench, "arco": made.write_arco,
    "makani": made.write_makani, "anemoi": made.write_anemoi, "sevir": made.write_sevir,
    "moving_mnist": made.write_moving_mnist, "robomimic": write_robomimic, "aloha": write_aloha,
    "d4rl": made.write_d4rl, "anndata": made.write_anndata, "pcam": made.write_pcam,
    "fastmri": write_fastmri, "ome_zarr": made.write_ome, "dlio": write_dlio,
}  # fmt: skip


def check_well(names: dict[str, Any]) -> None:
    with h5py.File(sorted(Path().glob(names["target"]))[0]) as file:
        density, inflow = file["t0_fields/density"][:], file["t0_fields/inflow"][:]
        tensor = file["t2_fields/C"][:]
    element = names["everything"][7]  # trajectory 1, step 1
    np.testing.assert_array_equal(element[..., 0], inflow[1][:, None].repeat(24, 1))
    np.testing.assert_array_equal(element[..., 1], density[1, 1])
    np.testing.assert_array_equal(element[..., 2:4], tensor[1, 1, :, :, 0])
    np.testing.assert_array_equal(element[..., 4:], tensor[1, 1, :, :, 1])
    x, y = names["change"][3]
    np.testing.assert_array_equal(y, names["train"][3][1] - x[-1:])
    assert np.abs(np.asarray(names["scaled"]).mean((0, 1, 2))).max() < 1e-4
    assert len(names["all_files"]) == 2 * 4 * 2
    np.testing.assert_array_equal(names["all_files"][2][0], density[1, :4])


def check_pdebench(names: dict[str, Any]) -> None:
    with h5py.File("2D_CFD_Rand_M0.1_Eta0.01_Zeta0.01_periodic_Train.hdf5") as file:
        run = np.stack([file[key][4] for key in names["keys"]], -1)
    np.testing.assert_array_equal(names["coarse"][4], run[:, ::2, ::2].transpose(1, 2, 0, 3))
    assert set(names["train"].sources()[0].storage().part_names)


def check_arco(names: dict[str, Any]) -> None:
    group = zarr.open_group(names["path"], mode="r")
    x, y = names["pairs"][4]  # anchored at hour 5
    np.testing.assert_array_equal(x[:, 2:4], group["temperature"][4:6, 1:])
    np.testing.assert_array_equal(y[:, 4], group["2m_temperature"][[6, 11]])
    np.testing.assert_array_equal(y[0, 5], group["land_sea_mask"][:])
    assert (len(names["train"]), len(names["val"])) == (18, 6)


def check_makani(names: dict[str, Any]) -> None:
    with h5py.File("2017.h5") as file:
        np.testing.assert_array_equal(names["some"][24], file["fields"][0, [1, 4]])
        np.testing.assert_array_equal(names["tile"][25], file["fields"][1, :, :10, :20])
    assert names["lengths"].tolist() == [12, 11, 12, 11]


def check_anemoi(names: dict[str, Any]) -> None:
    data = names["group"]["data"][:]
    variables = [names["names"].index("2t"), names["names"].index("10u")]
    np.testing.assert_array_equal(names["some"][2], data[2, variables, 0])
    assert names["lengths"].tolist() == [13, 25]
    assert len(names["both"]) == 38 - 10  # of the dates from the tenth on, two are missing
    x, y = names["both"][0]
    np.testing.assert_array_equal(x, y)


def check_sevir(names: dict[str, Any]) -> None:
    """Join by the catalogue, which lists file and position of each event."""
    import csv

    with open("CATALOG.csv") as file:
        rows = list(csv.DictReader(file))
    where = {(row["img_type"], row["id"]): row for row in rows}
    both, ids = names["both"], [name.decode() for name in names["vil_ids"]]
    paired = [event for _, event in where if ("ir069", event) in where]
    assert len(both) == len(set(paired)) == 20
    seen = {both[at]["vil"].tobytes(): both[at]["ir069"] for at in range(len(both))}
    for event in set(paired):
        arrays = {}
        for kind in ("vil", "ir069"):
            row = where[kind, event]
            with h5py.File(f"data/{row['file_name']}") as file:
                arrays[kind] = np.moveaxis(file[kind][int(row["file_index"])], -1, 0)
        np.testing.assert_array_equal(seen[arrays["vil"][13:25].tobytes()], arrays["ir069"][:13])
    hail = [event for event in ids if where["vil", event]["event_type"] == "Hail"]
    assert len(names["hail"]) == len(hail) == 8
    storms, position = names["storms"], {event: at for at, event in enumerate(ids)}
    tables = {}
    for path in glob.glob("data/lght/2018/*.h5"):
        with h5py.File(path) as file:
            tables.update({event: file[event][:] for event in file})
    assert len(storms) == len(tables) == 22
    vil = names["vil"]
    found = {storms[at]["vil"].tobytes(): storms[at]["lght"] for at in range(len(storms))}
    for event, table in tables.items():
        np.testing.assert_array_equal(found[vil[position[event]].tobytes()], table)


def check_robomimic(names: dict[str, Any]) -> None:
    with h5py.File("image.hdf5") as file:
        lengths = {name: file[f"data/{name}"].attrs["num_samples"] for name in file["data"]}
        parts = {key: [n.decode() for n in file[f"mask/{key}"][:]] for key in ("train", "valid")}
    assert len(names["train"]) == sum(lengths[name] for name in parts["train"])
    assert len(names["val"]) == sum(lengths[name] for name in parts["valid"])


def check_aloha(names: dict[str, Any]) -> None:
    with h5py.File("jpeg/episode_2.hdf5") as file:
        action = file["action"][:]
    (x, y, mask) = names["train"][2 * 25 + 3]
    assert x["observations/images/cam_high"].shape == (24, 32, 3)
    np.testing.assert_array_equal(y[:22], action[3:])
    assert mask.sum() == 22


def check_d4rl(names: dict[str, Any]) -> None:
    with h5py.File(names["path"]) as file:
        rewards = file["rewards"][:]
        done = file["terminals"][:]
        ends = np.flatnonzero(done | file["timeouts"][:])
    assert ends[-1] == 1999
    returns = [part.sum() for part in np.split(rewards, ends[:-1] + 1)]
    np.testing.assert_allclose(names["returns"], returns, rtol=1e-4)
    assert len(names["weight"]) == len(names["steps"]) == 2000 - (~done[ends]).sum()
    assert sum(batch["done"].sum() for batch in names["loader"]) == done.sum()


def check_anndata(names: dict[str, Any]) -> None:
    counts = np.zeros(3, int)
    for _, y in names["loader"]:
        counts += np.bincount(y, minlength=3)
    assert counts.sum() == 300
    assert np.ptp(counts) <= 3
    np.testing.assert_array_equal(names["genes"][5], names["counts"][5][[3, 17, 42]])


def check_ome_zarr(names: dict[str, Any]) -> None:
    group = zarr.open_group(names["path"], mode="r")
    assert names["coarse"].shape == (48, 1, 48, 48)
    np.testing.assert_array_equal(names["volume"][1], group["0"][1, 0])
    assert len(names["full"]) == len(names["grid"]) == 48 * 9
    label = group["labels/nuclei/0"][0, 0, 5, 32:64, 64:96]
    np.testing.assert_array_equal(names["grid"][5 * 9 + 5][1], label)


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    name.removeprefix("check_"): check
    for name, check in globals().items()
    if name.startswith("check_")
}


def said(line: str) -> list[tuple[int, ...]]:
    """Return the shapes in a comment; ``each`` means x and y."""
    comment = line.partition("#")[2]
    shapes = [
        tuple(int(one) for one in re.findall(r"\d+", shape))
        for shape in re.findall(r"\(((?:\d+, ?)*\d+,?)\)", comment)
    ]
    return shapes * 2 if "each" in comment else shapes


def shapes_of(batch: Any) -> list[tuple[int, ...]]:
    if isinstance(batch, dict):
        return [shape for one in batch.values() for shape in shapes_of(one)]
    if isinstance(batch, tuple | list):
        return [shape for one in batch for shape in shapes_of(one)]
    return [batch.shape]


@pytest.mark.filterwarnings("ignore::oocdata.errors.MissingPartnerWarning")
@pytest.mark.parametrize("page", WRITERS)
def test_a_page_runs_on_its_layout(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    WRITERS[page](tmp_path)
    text = (RECIPES / f"{page}.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    told = 0
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        exec(block, names)
        for line in block.splitlines():
            match = re.match(r"(x, y, mask|x, y|batch) = .*batch\(0\)", line)
            if match and said(line):
                batch = [names[name] for name in match[1].split(", ")]
                assert set(said(line)) <= set(shapes_of(batch)), line
                told += 1
    assert told or page == "arco"
    CHECKS.get(page, lambda _: None)(names)


def test_each_page_is_in_the_index_and_each_layout_has_one() -> None:
    index = (RECIPES / "index.md").read_text(encoding="utf-8")
    pages = {path.stem for path in RECIPES.glob("*.md")} - {"index"}
    assert pages == set(WRITERS)
    assert all(f"]({page}.md)" in index and f"\n{page}\n" in index for page in pages)
    on_other_pages = {"flow", "tensor", "seeds", "incompressible", "ome_plate", "anemoi_forecasts"}
    on_other_pages |= {"sevir_lightning"}
    layouts = {layout.__name__ for layout in LAYOUTS} - on_other_pages
    assert {name.removesuffix("_zarr") for name in pages - {"pdebench"}} == layouts
