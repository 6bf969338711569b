"""`oocdata preview`: its files, its output, and pictures in the terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import termios
from fcntl import ioctl
from functools import partial
from io import BytesIO
from pathlib import Path
from struct import pack

import command
import fork_server
import h5py
import numpy as np
import pytest
import tensorstore
import zarr
from PIL import Image
from rich.console import Console

from oocdata.tools.preview.sheet import can_show

FRAMES = np.random.default_rng(0).random((40, 3, 8, 10), np.float32) * 9


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder one with a file of every format."""
    np.save(tmp_path / "ds.npy", FRAMES)
    np.save(tmp_path / "numbers.npy", np.arange(40))
    FRAMES.astype(">f4").tofile(tmp_path / "ds.bin")
    with h5py.File(tmp_path / "sim.h5", "w") as file:
        file.create_dataset("flow/u", data=FRAMES[:, 0], chunks=(8, 8, 10))
        file["label"] = np.arange(40)
    zarr.create_array(tmp_path / "v2.zarr", data=FRAMES, chunks=(8, 3, 8, 10), zarr_format=2)
    store = tensorstore.open(
        {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(tmp_path / "v3.zarr")},
            "metadata": {"shape": [40, 8, 10, 3], "data_type": "uint8",
                         "dimension_names": ["time", "lat", "lon", "band"]},
            "create": True,
        }
    ).result()  # fmt: skip
    store[...] = (FRAMES.transpose(0, 2, 3, 1) * 28).astype("u1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


run = partial(command.run, "preview")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ds.npy"], "axes       channel 3, y 8, x 10"),
        (["sim.h5::flow/u"], "40 rows of (8, 10) float32"),
        (["v2.zarr"], "channel 3"),
        (["v3.zarr"], "axes       lat 8, lon 10, band 3"),
        (["ds.bin", "--dtype", ">f4", "--shape", "-1,3,8,10"], "channel 3"),
        (["numbers.npy"], "40 rows of int64"),
        (["ds.npy", "--next-frame"], "39 elements of 2 arrays of (3, 8, 10) float32"),
        (["ds.npy", "--rows", "3:30:9"], "3 rows: 3, 12, 21"),
        (["ds.npy", "--rows", "7,-1"], "2 rows: 7, 39"),
        (["ds.npy", "--layout", "DHW"], "depth 3, y 8, x 10"),
        (["ds.npy"], "scale      channel 2: "),
    ],
)
def test_the_shown_rows_are_described(folder: Path, arguments: list[str], words: str) -> None:
    before = set(folder.iterdir())
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert words in result.stdout
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.stdout.endswith("none: -o FILE.png writes one\n")
    assert set(folder.iterdir()) == before


def test_a_sheet_is_written_to_the_output(folder: Path) -> None:
    before = set(folder.iterdir())
    assert run("ds.npy", "-n", "1", "-o", "a.png").stdout.endswith("written    a.png\n")
    assert {path.name for path in set(folder.iterdir()) - before} == {"a.png"}
    with Image.open("a.png") as picture:
        assert picture.width > 500
    written = Path("a.png").read_bytes()
    again = run("v2.zarr", "-n", "2", "-o", "a.png")
    assert again.exit_code == 2
    assert "be replaced: --overwrite." in " ".join(again.stderr.split())
    assert Path("a.png").read_bytes() == written
    assert run("v2.zarr", "-n", "2", "-o", "a.png", "-f").exit_code == 0
    assert Path("a.png").read_bytes() != written


def test_json_has_everything_and_writes_nothing(folder: Path) -> None:
    result = run("ds.npy", "--count", "2", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["picture"] is None
    assert found["rows"] == [[0], [39]]
    assert found["axes"][""] == {
        "letters": "CHW", "sizes": [3, 8, 10], "names": ["channel", "y", "x"],
        "reason": "by their lengths",
    }  # fmt: skip
    scale = found["scales"][0]
    values = FRAMES[[0, 39], 0].astype("f8")
    low, high = np.percentile(values, (1, 99))
    assert (scale["low"], scale["high"]) == (low, high)
    assert not list(folder.glob("*.png"))
    named = json.loads(run("ds.npy", "--count", "1", "--json", "--output", "a.png").stdout)
    assert named["picture"] == "a.png"
    assert (folder / "a.png").exists()


def test_a_folder_that_does_not_exist(folder: Path) -> None:
    result = run("ds.npy", "--output", "none/a.png")
    assert result.exit_code == 1
    assert "the system says: No such file or directory. [file 'none/a.png']" in " ".join(
        result.stderr.split()
    )


def test_films(folder: Path) -> None:
    result = run("ds.npy", "-n", "3", "--rows", "10:", "--fps", "20", "-o", "a.gif")
    assert result.exit_code == 0, result.output
    assert "3 rows: 10 to 12" in result.stdout
    assert result.stdout.endswith("written    a.gif\n")
    with Image.open("a.gif") as film:
        assert (film.n_frames, film.info["duration"]) == (3, 50)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ds.npy", "--output", "a.bmp"], "must end in .png"),
        (["ds.npy", "--rows", "50:60"], "--rows must hold a row"),
        (["ds.npy", "--rows", "3,77"], "must lie within"),
        (["ds.npy", "--layout", "HW"], "--layout must be 'auto' or a letter"),
        (["six.npy"], "ooc.preview(view[:, 0])"),
    ],
)
def test_wrong_calls_name_the_option(folder: Path, arguments: list[str], words: str) -> None:
    np.save("six.npy", np.zeros((4, 2, 3, 4, 5, 6, 7)))
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in " ".join(result.stderr.replace("│", "").split())
    assert "`" not in result.stderr
    assert not list(folder.glob("*.png"))


def test_notes_name_the_option(folder: Path) -> None:
    np.save("guess.npy", FRAMES[:, :, :3, :3])
    result = run("guess.npy")
    assert "are a guess: set them with --layout" in " ".join(result.stdout.split())


def test_an_output_of_few_letters_is_enough(folder: Path) -> None:
    code = (
        "import sys; sys.stdout = open(1, 'w', encoding='latin-1')\n"
        "import typer; from oocdata.cli.preview import preview; typer.run(preview)"
    )
    done = fork_server.run(code, "ds.npy")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("none: -o FILE.png writes one\n")


# The terminal ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({"force_terminal": True}, {"TERM": "xterm-256color"}, True),
        ({"force_terminal": False}, {"TERM": "xterm-256color"}, False),
        ({"force_terminal": True}, {"TERM": "dumb"}, False),
        ({"force_terminal": True}, {"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
    ],
)
def test_only_a_terminal_with_colours_gets_a_picture(
    options: dict[str, bool], environment: dict[str, str], expected: bool
) -> None:
    assert can_show(Console(**options, _environ=environment)) is expected  # type: ignore[arg-type]


def in_terminal(
    answer: bytes | None,
    *arguments: str,
    size: tuple[int, int, int, int] = (40, 100, 800, 800),
    **environment: str,
) -> tuple[int, bytes]:
    """Run the command in its own terminal; return its exit code and its output.

    `size`: lines, characters, and pixels across and down.
    `answer`: what the terminal answers to the question for Sixel (Primary Device Attributes).
    """
    terminal, end = pty.openpty()
    code = (
        f"import os, sys; sys.argv = ['preview', *{arguments!r}]\n"
        f"end = os.open({os.ttyname(end)!r}, os.O_RDWR)\n"
        "print('open', flush=True)\n"
        "for number in range(3):\n"
        "    os.dup2(end, number)\n"
        "import typer; from oocdata.cli.preview import preview; typer.run(preview)"
    )
    ioctl(end, termios.TIOCSWINSZ, pack("HHHH", *size))
    env = {
        **{name: value for name, value in os.environ.items()
           if name not in ("NO_COLOR", "KITTY_WINDOW_ID", "TERM_PROGRAM", "WT_SESSION")},
        "COLORTERM": "truecolor", **environment,
    }  # fmt: skip
    process = fork_server.start(code, env=env, hear="stdout")
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    os.close(end)
    shown = b""
    try:
        while select.select([terminal], [], [], 60)[0]:
            try:
                got = os.read(terminal, 2**16)
            except OSError:  # the other end is closed
                break
            shown += got
            if answer is not None and b"\x1b[c" in got:
                os.write(terminal, answer)
        return process.wait(120), shown
    finally:
        process.kill()
        process.wait()
        process.close()
        os.close(terminal)


def test_a_terminal_that_does_not_answer_gets_half_blocks(folder: Path) -> None:
    code, shown = in_terminal(None, "ds.npy", TERM="xterm-256color")
    text = shown.decode()
    assert code == 0, text
    assert "\x1b[38;2;" in text
    assert "▀" in text
    plain = re.sub(r"\x1b(\[[0-9;?]*[a-z]|_G[^\x1b]*\x1b\\)", "", text).replace("\r", "")
    assert max(map(len, plain.splitlines())) <= 100
    assert "written" not in plain
    assert not list(folder.glob("*.png"))


def test_a_terminal_that_does_not_know_its_size_gets_none(folder: Path) -> None:
    code, shown = in_terminal(None, "ds.npy", TERM="xterm-256color", size=(0, 0, 0, 0))
    assert code == 0, shown
    assert b"none: -o FILE.png writes one" in shown


def test_a_terminal_with_sixel_gets_the_sheet(folder: Path) -> None:
    code, shown = in_terminal(b"\x1b[?62;4c", "ds.npy", TERM="foot")
    assert code == 0, shown
    assert b"\x1bP0;0;0q" in shown
    assert "▀".encode() not in shown


def test_encoded_pictures_in_rows_are_opened_by_the_option_that_is_named(tmp_path: Path) -> None:
    stored = []
    for grey in range(4):
        Image.fromarray(np.full((20, 30), grey, "u1")).save(encoded := BytesIO(), "PNG")
        stored.append(encoded.getvalue())
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = np.array(stored)
    error = " ".join(run(str(tmp_path / "a.h5")).stderr.split())
    assert "open encoded pictures with --pictures" in error
    shown = run(str(tmp_path / "a.h5"), "--pictures", "180,240,3")
    assert "4 rows of (180, 240, 3) uint8" in shown.stdout


def test_pictures_that_differ_are_resized(tmp_path: Path) -> None:
    for number in range(3):
        Image.new("RGB", (6, 4 + number)).save(tmp_path / f"{number}.png")
    files = f"{tmp_path}/*.png"
    result = run(files)
    assert result.exit_code == 1
    assert "give --pictures a size and channels; or" in " ".join(result.stderr.split())
    resized = run(files, "--pictures", "8,9,1", "-o", str(tmp_path / "sheet.webp"))
    assert "3 rows of (8, 9) uint8" in resized.stdout
