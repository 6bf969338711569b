"""Every notebook runs from top to bottom in an empty folder, and is stored with its outputs.

After changing a notebook, or the output of code in it, execute it and look at its pictures::

    jupyter nbconvert --to notebook --execute --inplace \\
        --ExecutePreprocessor.record_timing=False notebooks/*.ipynb
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fork_server
import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
psutil = pytest.importorskip("psutil")

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = ["chunks_and_shuffling", "five_pipelines", "next_frame", "usual_ways", "workers_and_resume"]
MOST_BYTES = 600_000

# Fewer rounds and rows for code that measures; the stored outputs have all of them. And of two
# notebooks the scripts run as forks of a process that has imported TensorFlow.
PYTHON, FORK = "[sys.executable, ", f'[sys.executable, "{fork_server.__file__}", '
SMALLER = {
    "chunks_and_shuffling": {
        "32 * 256\n": "32 * 128\n",
        "Clips(count=256": "Clips(count=128",
        "for _ in range(3):\n    for name, epoch": "for _ in range(1):\n    for name, epoch",
        "[: 48 * 32].reshape(48, 32)": "[: 6 * 32].reshape(6, 32)",
        "[name] * 3": "[name]",
        "np.empty((3, len(kept)))": "np.empty((1, len(kept)))",
    },
    "five_pipelines": {
        "SMALL = 1  ": "SMALL = 20  ",
        "range(1 + 3)": "range(1 + 1)",
        PYTHON: FORK,
    },
    "next_frame": {"Clips(count=4000": "Clips(count=200"},
    "usual_ways": {
        "(7_169, 3, 50, 50)": "(1_025, 3, 50, 50)",
        "range(1 + 3)": "range(1 + 1)",
        "[way] * 3": "[way]",
        PYTHON: FORK,
    },
    "workers_and_resume": {
        "Clips(count=120": "Clips(count=60",
        "for _ in range(6):\n            row": "for _ in range(1):\n            row",
        '"1 40 "': '"1 20 "',
        "every=25": "every=15",
    },
}

each = pytest.mark.parametrize("name", NAMES)


def kept(name: str) -> Any:
    """Return a notebook as it is in the repository."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in code(notebook) for output in cell.outputs]


def pictures(notebook: Any) -> list[bytes]:
    found = (output.get("data", {}).get("image/png") for output in outputs(notebook))
    return [base64.b64decode(picture) for picture in found if picture]


def texts(notebook: Any) -> Iterator[str]:
    """Yield the visible outputs, without the bytes of pictures."""
    for output in outputs(notebook):
        yield output.get("text", "")
        for kind, shown in output.get("data", {}).items():
            if kind.startswith("text/"):
                yield re.sub(r"data:image/\w+;base64,[\w+/=]+", "", shown)


def kinds(cell: Any) -> set[str]:
    """Return the outputs of a cell, as names of streams and kinds of data."""
    shown = set()
    for output in cell.outputs:
        shown |= set(output.get("data", {})) or {output.get("name", output.output_type)}
    return shown


def paths(text: str) -> list[str]:
    """Return text that looks like an absolute path: two names at least, unlike a key of HDF5.

    >>> paths("frames.h5, /frames, 5 rows/s; at /tmp/tmpx/a.npy, ~/b.npy")
    ['/tmp/tmpx/a.npy,', '~/b.npy']
    """
    return re.findall(r"(?<![\w<:/.])(?:~/|[A-Z]:\\|/[\w.-]+/)[^\s'\"<>]*", text)


def check_outputs(notebook: Any) -> None:
    """Check all visible outputs, and that the notebook was executed once from top to bottom."""
    assert notebook.metadata.kernelspec.name == "python3"
    numbers = [cell.execution_count for cell in code(notebook)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {output.output_type for output in outputs(notebook)} <= {
        "stream",
        "display_data",
        "execute_result",
    }
    assert {output.get("name", "stdout") for output in outputs(notebook)} == {"stdout"}
    shown = "\n".join(texts(notebook))
    assert "warning" not in shown.lower()
    assert not paths(shown)
    assert pictures(notebook)


@each
def test_it_is_kept_with_its_outputs(name: str) -> None:
    notebook = kept(name)
    check_outputs(notebook)
    assert (FOLDER / f"{name}.ipynb").stat().st_size < MOST_BYTES
    assert not any("execution" in cell.metadata for cell in notebook.cells)  # no times of execution


@each
def test_its_pictures_show_something_and_fit_on_a_page(name: str) -> None:
    image = pytest.importorskip("PIL.Image")
    for picture in pictures(kept(name)):
        opened = image.open(io.BytesIO(picture)).convert("RGB")
        assert opened.width <= 1100
        assert len(opened.getcolors(opened.width * opened.height)) > 16


def test_the_film_moves() -> None:
    image = pytest.importorskip("PIL.Image")
    (film,) = re.findall(r"data:image/gif;base64,([\w+/=]+)", str(outputs(kept("next_frame"))))
    opened = image.open(io.BytesIO(base64.b64decode(film)))
    frames = set()
    for number in range(opened.n_frames):
        opened.seek(number)
        frames.add(opened.convert("RGB").tobytes())
    assert len(frames) == 16  # four inputs, twelve predictions


def test_all_are_tested() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.long
@each
# Warnings of the kernel itself: its loop, its sockets, its notice about TCP.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Build matplotlib's font cache first; in a notebook it would print a message.
    pytest.importorskip("matplotlib.font_manager")
    folder, temporary = tmp_path / "folder", tmp_path / "temporary"
    for made in (folder, temporary):
        made.mkdir()
    monkeypatch.setenv(*fork_server.shared())  # before TMPDIR: it outlives this test
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = kept(name)
    shown = [kinds(cell) for cell in code(notebook)]
    for cell in code(notebook):
        cell.outputs, cell.execution_count = [], None
    for usual, smaller in SMALLER[name].items():
        (cell,) = [cell for cell in code(notebook) if usual in cell.source]
        cell.source = cell.source.replace(usual, smaller)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=1000, resources=resources).execute()
    check_outputs(notebook)
    assert [kinds(cell) for cell in code(notebook)] == shown  # the stored outputs match this code
    # The notebook removed its files, and its processes have ended. TensorFlow imports files that
    # it generates, and leaves what Python compiled of them behind.
    assert {path.name for path in (*folder.iterdir(), *temporary.iterdir())} <= {"__pycache__"}
    _, alive = psutil.wait_procs(started_under(temporary), timeout=30)
    assert not alive


def started_under(temporary: Path) -> list[Any]:
    """Return the processes that use a folder for temporary files."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(temporary):
                found.append(process)
        except psutil.Error:  # the process is another user's, or gone
            continue
    return found
