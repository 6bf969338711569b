"""Every block of Python in the README and in docs/ runs, and links of the README are valid.

The blocks of a page run one after another, in a folder with the files that they open. A block whose
first line names a file (``# train.py``) is written there; ``train.py`` is also run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import fork_server
import h5py
import numpy as np
import pytest
import xarray as xr
from anndata_files import random_csr, write_file, write_genes
from PIL import Image
from ports import lasting_ports
from servers.ranges import RangeServer
from servers.s3 import S3

from oocdata.axes import axes_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]
    if "```python" in path.read_text(encoding="utf-8")
)
LONG = {"docs/howto/cluster.md"}
STORES = {"docs/howto/stores.md"}
"""Pages that read files from servers."""
RECIPES = {page for page in PAGES if re.match(r"docs/recipes/(?!index)", page)}
"""Pages with their own files; see `test_recipes`."""

MODEL = """
import keras
model = keras.Sequential([keras.Input((16, 16)), keras.layers.Dense(16)])
model.compile("adam", "mse")
"""
BEFORE = {"README.md": MODEL}
"""Code that a page assumes."""

PACKED = {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -1}

SMALLER = {
    "epochs=20": "epochs=2",
    "epochs=10": "epochs=2",
    "every=50": "every=5",
    "seconds=1)": "seconds=0.2)",
    "seconds=2)": "seconds=0.2)",
    "(5000, 32, 32)": "(300, 32, 32)",
}
"""Replacements that make slow pages quick enough for a test."""


def blocks(page: str, language: str = "python") -> list[str]:
    """Return the blocks of code on a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```(?:{language})\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def missing(code: str) -> str | None:
    """Return a package that a block imports but that is not installed."""
    for name in re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE):
        if name == "torch" and importlib.util.find_spec(name) is None:
            return name
    return None


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the files that the documents open."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(0)
    frames = random.random((500, 16, 16), "f4")
    np.save(folder / "ds.npy", frames)
    frames[:10].tofile(folder / "dump.bin")
    for number in (1, 2, 10):
        np.save(folder / f"part{number}.npy", frames[:40])
        (folder / "volumes").mkdir(exist_ok=True)
        np.save(folder / f"volumes/{number}.npy", frames[:9])
        with h5py.File(folder / f"volumes/{number}.h5", "w") as file:
            file["image"], file["label"] = frames[:9], number
    with h5py.File(folder / "sim.h5", "w") as file:
        u = random.integers(0, 9, (300, 4, 40, 48)).astype("f4")
        file.create_dataset("u", data=u, chunks=(8, 4, 40, 48), compression="gzip", shuffle=True)
    with h5py.File(folder / "data.h5", "w") as file:
        file["images"] = random.integers(0, 255, (200, 32, 32, 3)).astype("u1")
        file["labels"] = random.integers(0, 9, 200)
    with h5py.File(folder / "well.hdf5", "w") as file:
        each = {"t0_fields/density": (), "t0_fields/pressure": (), "t1_fields/velocity": (2,)}
        for field, more in each.items():
            file[field] = random.random((10, 6, 8, 12, *more), "f4")
        file["t0_fields/inflow"] = random.random((10, 8, 12), "f4")
        file["mask"] = random.random((8, 12), "f4")
    with h5py.File(folder / "robomimic.hdf5", "w") as file:
        for number, length in enumerate((30, 12, 25)):
            file[f"data/demo_{number}/actions"] = random.random((length, 7))
            image = random.integers(0, 255, (length, 12, 12, 3)).astype("u1")
            file[f"data/demo_{number}/obs/image"] = image
        file["mask/train"] = np.array([b"demo_0", b"demo_2"])
    with h5py.File(folder / "table.h5", "w") as file:
        rows = np.zeros(50, [("position", "f4", 3), ("label", "i8")])
        file.create_dataset("rows", data=rows, chunks=(16,), compression="gzip")
    with h5py.File(folder / "sky.h5", "w") as file:
        sky = h5py.enum_dtype({"clear": 0, "cloudy": 1, "rain": 2}, "u1")
        file.create_dataset("sky", data=np.arange(20) % 3, dtype=sky)
    np.save(
        folder / "dates.npy", np.arange("2020-01-01", "2020-02-01", dtype="M8[D]").astype("M8[s]")
    )
    write_file(folder / "cells.h5ad", random_csr(400, 60), chunks=(300,), compression="gzip")
    for name, genes in {"a": "ABCDEF", "b": "CABXYF"}.items():
        path = write_file(folder / f"{name}.h5ad", random_csr(30, 6))
        with h5py.File(path, "a") as file:
            write_genes(file, genes)
    write_pictures(folder, random)
    hours = xr.DataArray(
        random.random((24, 5, 6)),
        {"time": np.datetime64("2020-01-01", "ns") + np.arange(24) * np.timedelta64(1, "h")},
        ("time", "lat", "lon"),
        "t2m",
    )
    hours.to_netcdf(folder / "era5.nc", encoding={"t2m": PACKED})
    return folder


def write_pictures(folder: Path, random: np.random.Generator) -> None:
    """Write folders of picture files of equal and of different shapes, and tables of them."""

    def picture(height: int) -> Image.Image:
        return Image.fromarray(random.integers(0, 255, (height, 64, 3)).astype("u1"))

    for film in range(10):
        (of_film := folder / "films" / ("run", "walk")[film % 2] / f"film_{film}").mkdir(
            parents=True
        )
        for number in range(3):
            picture(8).save(of_film / f"{number}.png")
    for name in ("pets/cat", "pets/dog", "photos", "masks"):
        (folder / name).mkdir(parents=True)
    for number in range(6):
        picture(48).save(folder / f"pets/cat/{number}.jpg")
        picture(48).save(folder / f"pets/dog/{number}.jpg")
        picture(40 + number).save(folder / f"photos/{number}.jpg")
        picture(48).quantize(4).save(folder / f"masks/{number}.png")
    (folder / "pets/train.txt").write_text("cat/1\ndog/4.jpg\n")
    (folder / "ages.csv").write_text("file,age\ndog/4.jpg,3\ncat/2.jpg,1.5\n")


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    """Return a folder with copies of the files, because pages change some."""
    return shutil.copytree(files, tmp_path, dirs_exist_ok=True)


def run(code: str, folder: Path, *arguments: str, **environment: str) -> None:
    """Run a script in a folder, in a process that has TensorFlow."""
    path = folder / "page.py"
    path.write_text(code)
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg", **environment}
    script = fork_server.start(code, *arguments, path=str(path), env=env, cwd=str(folder))
    _, errors = script.communicate(timeout=150)
    assert script.returncode == 0, errors


def script_of(page: str, folder: Path) -> tuple[str, list[str]]:
    """Return the blocks of a page as one script, and the packages that skipped blocks need."""
    parts, left_out = [BEFORE.get(page, "")], []
    for code in blocks(page):
        for usual, smaller in SMALLER.items():
            code = code.replace(usual, smaller)
        if package := missing(code):
            left_out.append(package)
            continue
        named = re.match(r"# (\w+\.py)\n", code)
        if named:
            (folder / named[1]).write_text(code)
        if not named or named[1] == "train.py":
            parts.append(code)
    return "\n".join(parts), left_out


@pytest.mark.parametrize("page", [page for page in PAGES if page not in LONG | RECIPES | STORES])
def test_the_blocks_of_a_page_run(page: str, folder: Path) -> None:
    code, left_out = script_of(page, folder)
    run(code, folder)
    if left_out:
        pytest.skip(f"blocks need packages that are not installed: {', '.join(left_out)}")


def test_files_in_stores(folder: Path) -> None:
    code, _ = script_of("docs/howto/stores.md", folder)
    shutil.copy(folder / "ds.npy", folder / "clip.npy")
    with RangeServer(folder) as server, S3("bucket") as store:
        store.upload(folder)
        for usual, here in (
            ("https://data.example.org", server.url),
            ("file:///tmp/", f"{folder.as_uri()}/"),
        ):
            assert usual in code
            code = code.replace(usual, here)
        after = (
            "\nassert len(parts) == 120 and ooc.open('s3://bucket/fast.zarr').shape == flow.shape"
        )
        run(code + after, folder, TMPDIR=str(folder), **store.environment)


@pytest.fixture
def service(folder: Path) -> Iterator[str]:
    """Start a dispatcher and a worker as the page does, and return the dispatcher's address."""
    main = "from oocdata.cli import main; main()"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
    }
    started = []

    def start(*arguments: str) -> str:
        server = fork_server.start(main, *arguments, env=env, cwd=str(folder), hear="stdout")
        started.append(server)
        assert server.stdout is not None
        return server.stdout.readline().split()[4].rstrip(",")

    try:
        script_of("docs/howto/cluster.md", folder)  # writes prepare.py
        address = start("dispatcher", "--port", "0")
        start("worker", "--dispatcher", address, "--allow", "prepare")
        yield address
    finally:
        for server in started:
            server.kill()
            server.wait()
            server.close()


@pytest.mark.long
def test_a_cluster_reads(service: str, folder: Path) -> None:
    code, _ = script_of("docs/howto/cluster.md", folder)
    assert "localhost:5050" in code
    code = code.replace("localhost:5050", service)
    run(f"{code}\nassert sum(len(batch) for batch in dataset) == 300", folder)


@pytest.mark.long
def test_ranks_of_tensorflow(folder: Path) -> None:
    script_of("docs/howto/distributed.md", folder)
    address = f"127.0.0.1:{lasting_ports(1)[0]}"
    run((folder / "workers.py").read_text(), folder, "0", address)


def test_a_block_that_fails_is_noticed(folder: Path) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run("1 / 0", folder)


def test_all_pages_are_found() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/howto/open.md", "docs/shuffling.md"} <= set(
        PAGES
    )
    assert sum(len(blocks(page)) for page in PAGES) > 40


def test_links_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(links) > 15
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
    assert len(text.encode()) <= 8192


def test_code_fits_on_a_page() -> None:
    wide = [
        f"{page}: {line}"
        for page in PAGES
        for code in blocks(page, "python|sh")
        for line in code.splitlines()
        if len(line) > 95
    ]
    assert wide == []


def test_options_of_commands() -> None:
    """Commands in shell blocks use only options that exist."""
    from typer.main import get_command

    from oocdata.cli import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    seen = 0
    for page in PAGES:
        for block in blocks(page, "sh"):
            for name, rest in re.findall(r"\boocdata ([a-z]+)\b([^#\n]*)", block):
                known = {one for option in commands[name].params for one in option.opts}
                given = set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest))
                assert given <= known, f"{page}: oocdata {name} {rest}"
                seen += 1
    assert seen > 20


def test_the_rule_of_axes_is_as_told() -> None:
    text = (DOCS / "howto" / "axes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \(([\d, ]+)\) \| ([A-Z]+) \|", text, re.MULTILINE)
    assert len(rows) > 10
    for element, letters in rows:
        assert axes_of([int(length) for length in element.strip(",").split(",")]).letters == letters
