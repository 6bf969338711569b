"""Floors, public names, and what `import oocdata` may load."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import oocdata

ROOT = Path(oocdata.__file__).parent

FLOORS = {
    "errors": 0, "index": 0, "splits": 0, "threads": 0, "above": 0,
    "sources": 1, "writers": 1,
    "datasets": 2, "order": 2,
    "loader": 3, "explain": 3, "amplification": 3, "choice": 3, "runs": 3, "read_ahead": 3,
    "description": 3, "workers": 3,
    "frontends": 4, "testing": 4,
    "tools": 5,
    "cli": 6, "__init__": 6,
}  # fmt: skip

# What a fluent method may name on a higher floor or beside its own: see oocdata/above.py.
ARROWS_UP = {
    "datasets.map:Map",
    "loader:make_loader",
    "frontends.tfdata:to_tf",
    "frontends.keras:to_keras",
    "tools.profile:profile",
}

HEAVY = {
    "tensorflow",
    "keras",
    "h5py",
    "zarr",
    "tensorstore",
    "numcodecs",
    "imagecodecs",
    "typer",
    "rich",
    "matplotlib",
    "PIL",
    "textual_image",
    "xxhash",
    "xarray",
    "dask",
    "netCDF4",
    "pdoc",
}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def floor_of(module: str) -> int:
    parts = module.split(".")
    return FLOORS[parts[1] if len(parts) > 1 else "__init__"]


def name_of(path: Path) -> str:
    parts = ["oocdata", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def arrows(source: str) -> list[str]:
    """Modules of the package that a source imports when it runs (type-only imports aside)."""
    found: list[str] = []

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                self.generic_visit(node)

        def visit_Import(self, node: ast.Import) -> None:
            found.extend(alias.name for alias in node.names if alias.name.startswith("oocdata"))

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            if node.module and node.module.split(".")[0] == "oocdata":
                for alias in node.names:
                    # `from oocdata import errors` names a module, or the top if it is a value
                    inner = f"{node.module}.{alias.name}"
                    is_module = (ROOT.parent / Path(*inner.split("."))).with_suffix(".py").exists()
                    is_package = (ROOT.parent / Path(*inner.split("."))).is_dir()
                    found.append(inner if is_module or is_package else node.module)

    Visitor().visit(ast.parse(source))
    return found


def pointing_up(name: str, source: str) -> list[str]:
    if name == "oocdata":
        return []  # the public names
    return [arrow for arrow in arrows(source) if floor_of(arrow) > floor_of(name)]


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_arrows_point_down(path: Path) -> None:
    assert pointing_up(name_of(path), path.read_text()) == []


def test_an_arrow_up_is_noticed() -> None:
    assert pointing_up("oocdata.sources.npy", "from oocdata.loader import Loader") == [
        "oocdata.loader"
    ]
    assert pointing_up("oocdata.sources.npy", "def f():\n  import oocdata.cli") == ["oocdata.cli"]
    assert pointing_up("oocdata.index", "from oocdata import sources") == ["oocdata.sources"]
    assert pointing_up("oocdata.index", "from oocdata import errors") == []


def test_named_arrows_up_are_the_known_ones() -> None:
    found = set()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "above":
                found.add(":".join(argument.value for argument in node.args))  # type: ignore[attr-defined]
    assert found == ARROWS_UP


def test_only_sources_touch_storage() -> None:
    """No module above floor 1 imports a storage library, but for front-ends and tools."""
    for path in modules():
        name = name_of(path)
        if floor_of(name) in (0, 2, 3):
            imported = {
                alias.name.split(".")[0]
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Import)
                for alias in node.names
            } | {
                (node.module or "").split(".")[0]
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ImportFrom)
            }
            allowed = {"tensorflow", "keras"} if name == "oocdata.loader" else set()
            assert not imported & (HEAVY - allowed), name


def test_every_module_lists_its_public_names() -> None:
    for info in pkgutil.walk_packages([str(ROOT)], "oocdata."):
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{info.name}.{name}"


def test_public_names() -> None:
    assert len(set(oocdata.__all__)) == len(oocdata.__all__)
    tree = ast.parse((ROOT / "__init__.py").read_text())
    bound = {
        alias.asname or alias.name
        for node in ast.walk(tree)  # what is imported when it is asked for, too
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } | {"__version__"}
    assert bound == set(oocdata.__all__)
    assert set(oocdata.__all__) <= set(dir(oocdata))
    for name in oocdata.__all__:  # what comes when it is asked for, too
        assert getattr(oocdata, name) is not None


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return set(result.stdout.split())


def test_import_loads_no_framework() -> None:
    loaded = loaded_by("import oocdata")
    assert "numpy" in loaded
    assert not loaded & HEAVY


def test_a_framework_is_noticed() -> None:
    assert "h5py" in loaded_by("import oocdata, h5py")


def test_import_loads_little_of_the_standard_library() -> None:
    # Counted, not timed: each of these costs as much as several of our own modules.
    extra = loaded_by("import oocdata") - loaded_by("import numpy")
    assert not extra & {"zipfile", "fractions", "decimal", "asyncio", "multiprocessing", "logging"}
