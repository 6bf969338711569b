"""Floors, public names, and what `import oocdata` may load."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import numpy as np

import oocdata
from oocdata import registry

ROOT = Path(oocdata.__file__).parent

FLOORS = {
    "errors": 0, "index": 0, "threads": 0, "box": 0, "blocks": 0, "memory": 0, "registry": 0,
    "stretches": 0,
    "axes": 1,
    "engines": 1,
    "stores": 2,
    "formats": 3,
    "datasets": 4, "order": 4,
    "loader": 5, "runs": 5, "choice": 5, "cost": 5, "advice": 5, "explain": 5,
    "stream": 5, "generator_batches": 5,
    "describe": 6,
    "reading": 7,
    "frontends": 8, "testing": 8,
    "writers": 8, "tools": 9,
    "cli": 10, "__init__": 10, "__main__": 11,
}  # fmt: skip

HEAVY = {
    "tensorflow",
    "keras",
    "h5py",
    "zarr",
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


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def floor_of(module: str) -> int:
    parts = module.split(".")
    return FLOORS[parts[1] if len(parts) > 1 else "__init__"]


def name_of(path: Path) -> str:
    parts = ["oocdata", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def arrows(tree: ast.Module) -> list[str]:
    """Modules of the package that a module imports when it runs (type-only imports aside)."""
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

    Visitor().visit(tree)
    return found


def pointing_up(name: str, tree: ast.Module) -> list[str]:
    if name == "oocdata":
        return []  # the public names
    return [arrow for arrow in arrows(tree) if floor_of(arrow) > floor_of(name)]


def test_arrows_point_down() -> None:
    up = {name_of(path): pointing_up(name_of(path), parsed(path)) for path in modules()}
    assert {name: arrows for name, arrows in up.items() if arrows} == {}


def test_an_arrow_up_is_noticed() -> None:
    def up(name: str, source: str) -> list[str]:
        return pointing_up(name, ast.parse(source))

    assert up("oocdata.formats.npy", "from oocdata.loader import Loader") == ["oocdata.loader"]
    assert up("oocdata.engines.runs", "def f():\n  import oocdata.cli") == ["oocdata.cli"]
    assert up("oocdata.index", "from oocdata import engines") == ["oocdata.engines"]
    assert up("oocdata.index", "from oocdata import errors") == []


def test_nothing_is_imported_by_a_text() -> None:
    """An import by a name in a text is an arrow that nobody sees; the top alone may do it."""
    found = [
        name_of(path)
        for path in modules()
        if floor_of(name_of(path)) < FLOORS["tools"]
        and re.search(r"import_module\(\s*f?.oocdata", path.read_text())
    ]
    assert [name for name in found if name != "oocdata"] == []


def calls_by_name() -> list[tuple[str, int, list[str]]]:
    """Return each call of `registry.call`: the name, the number of arguments, and the options."""
    found = []
    for path in modules():
        for node in ast.walk(parsed(path)):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "registry.call"):
                continue
            name, *arguments = node.args
            options = [option.arg for option in node.keywords if option.arg is not None]
            found.append((ast.literal_eval(name), len(arguments), options))
    return found


def test_calls_by_name_fit_the_function() -> None:
    """No type checker sees them."""
    calls = calls_by_name()
    assert {name for name, _, _ in calls} == set(registry.functions)
    for name, count, options in calls:
        signature = inspect.signature(resolve_name(registry.functions[name]))
        signature.bind_partial(*[None] * count, **dict.fromkeys(options))


def test_nobody_outside_asks_a_source_for_its_class() -> None:
    """`isinstance` of an engine or a format stands in their rooms alone."""
    rooms = [ROOT / "engines", ROOT / "formats"]
    classes = {
        node.name
        for room in rooms
        for path in room.rglob("*.py")
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
    } - {"Source", "RowSource", "Storage", "Annotations"}
    for path in modules():
        if any(room in path.parents for room in rooms):
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = {getattr(one, "id", "") for one in ast.walk(node.args[1])}
                assert not asked & classes, f"{name_of(path)} asks for {asked & classes}"


def test_only_engines_and_formats_touch_storage() -> None:
    """No module between the formats and the front-ends imports a library of storage."""
    for path in modules():
        name = name_of(path)
        if floor_of(name) in (0, 4, 5, 6):
            imported = {
                alias.name.split(".")[0]
                for node in ast.walk(parsed(path))
                if isinstance(node, ast.Import)
                for alias in node.names
            } | {
                (node.module or "").split(".")[0]
                for node in ast.walk(parsed(path))
                if isinstance(node, ast.ImportFrom)
            }
            allowed = (
                {"tensorflow", "keras"} if name in ("oocdata.loader", "oocdata.stream") else set()
            )
            assert not imported & (HEAVY - allowed), name


def test_public_names() -> None:
    assert len(set(oocdata.__all__)) == len(oocdata.__all__)
    tree = ast.parse((ROOT / "__init__.py").read_text())
    bound = {
        alias.asname or alias.name
        for node in ast.walk(tree)  # what is imported when it is asked for, too
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } | {"__version__"}
    assert bound - {"registry"} == set(oocdata.__all__)
    assert dir(oocdata) == sorted(oocdata.__all__)  # what completion shows
    for name in oocdata.__all__:  # what comes when it is asked for, too
        assert getattr(oocdata, name) is not None


@cache
def modules_loaded_by(code: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return set(result.stdout.split())


def loaded_by(code: str) -> set[str]:
    return {name.split(".")[0] for name in modules_loaded_by(code)}


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


# What a program may never use: methods, formats and arguments of `oocdata.open`.
LATER = {
    *("choice", "cost", "datasets.map", "datasets.patches", "datasets.ragged", "datasets.sparse"),
    *("datasets.windows", "datasets.zip", "formats.hdf5", "formats.lines", "formats.manifest"),
    *("formats.packing", "formats.pictures", "formats.tfrecord", "formats.zarr", "loader", "order"),
    *("reading", "stores", "stream", "tools", "writers"),
}


def test_import_loads_little_of_the_package() -> None:
    # Counted, not timed: a module with a dataclass costs about half a percent of `import numpy`.
    own = {name for name in modules_loaded_by("import oocdata") if name.startswith("oocdata")}
    assert not own & {f"oocdata.{name}" for name in LATER}
    assert len(own) <= 68


def test_rows_of_a_file_load_no_other_format(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6))
    code = f"import oocdata; assert oocdata.open({str(tmp_path / 'a.npy')!r})[2] == 2"
    own = {name for name in modules_loaded_by(code) if name.startswith("oocdata")}
    assert own == {name for name in modules_loaded_by("import oocdata") if "oocdata" in name}


def test_messages_and_docstrings_name_public_functions() -> None:
    named = {
        (path.name, name)
        for path in modules()
        for name in re.findall(r"\booc\.(\w+)\(", path.read_text())
    }
    assert len(named) > 50
    assert {(file, name) for file, name in named if not hasattr(oocdata, name)} == set()
