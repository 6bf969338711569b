"""Every notebook runs from top to bottom in an empty folder, and is kept with its outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# The kernel's own: its loop, its sockets, its notice about TCP.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    assert not list(tmp_path.iterdir())  # what it wrote it also removed


def test_there_is_one() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_with_its_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert any("image/png" in out.get("data", {}) for out in outputs)
    assert not any(out.output_type == "error" for out in outputs)
