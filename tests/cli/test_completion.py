"""Completion of commands, options and datasets, in a real bash and through its protocol."""

from __future__ import annotations

import functools
import os
import pty
import select
import shlex
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

from oocdata.cli import app, options

MAIN = "from oocdata.cli import main; main()"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with files of every format, and put the command on the path."""
    with h5py.File(tmp_path / "sim.h5", "w") as file:
        file["flow/u"] = np.zeros((4, 3))
        file["flow/v"] = np.zeros((4, 3))
        file["label"] = np.zeros(4)
    group = zarr.create_group(tmp_path / "run.zarr")
    group.create_array("a/t2m", shape=(4, 3), dtype="f4")
    group.create_array("a/time", shape=(4,), dtype="f4")
    np.savez(tmp_path / "two.npz", images=np.zeros((4, 3)), labels=np.zeros(4))
    np.save(tmp_path / "ds.npy", np.zeros((4, 3)))
    (tmp_path / "text.txt").write_text("no array")
    (tmp_path / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    command = tmp_path / "bin" / "oocdata"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-c", MAIN])} "$@"\n')
    command.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@functools.cache
def script() -> str:
    """Return the script that --install-completion installs; the shell is detected as bash."""
    done = subprocess.run(
        ["bash", "-c", "oocdata --show-completion; exit"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


def told(shell: str, **asked: str) -> str:
    """Return the command's completions, requested by environment variables as a shell does."""
    env = {"_OOCDATA_COMPLETE": f"complete_{shell}", **asked}
    return CliRunner(env=env).invoke(app, prog_name="oocdata").stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("inf",), ["info"]),
        (("info", "sim.h5", "-k", ""), ["flow/u", "flow/v", "label"]),
        (("info", "ds.npy", "-k", ""), []),
        (("info", "--missing", "fill", "sim.h5", "--key", "la"), ["label"]),
        (("info", "sim.h5", "-k", "/flow/u"), ["/flow/u"]),
        (("info", "run.zarr", "-k", ""), ["a/t2m", "a/time"]),
        (("info", "two.npz", "-k", "l"), ["labels"]),
        (("info", "sim.h5::flow/u", "--missing", ""), ["error", "fill"]),
        (("info", "--verb"), ["--verbose"]),
        (("info", "ds.npy", "--missing", ""), ["error", "fill"]),
    ],
)
def test_completions(folder: Path, words: tuple[str, ...], expected: list[str]) -> None:
    line = shlex.join(("oocdata", *words[:-1]))
    said = told("bash", COMP_WORDS=f"{line} {words[-1]}", COMP_CWORD=str(len(words)))
    assert sorted(filter(None, said.splitlines())) == expected


def test_a_line_is_completed_as_it_is_typed(folder: Path) -> None:
    """In an interactive bash, bash itself completes the path, and the command completes the key."""
    # COMPREPLY is empty for the path, and `-o default` makes bash complete file names.
    (folder / "init").write_text(f"PS1='> '\nbind 'set bell-style none'\n{script()}\n")
    terminal, end = pty.openpty()
    # (Python warns about pty.fork in a process with threads.)
    bash = subprocess.Popen(
        ["bash", "--rcfile", "init", "-i"], stdin=end, stdout=end, stderr=end,
        start_new_session=True,
    )  # fmt: skip
    os.close(end)
    try:
        assert wait_for(terminal, b"> ")
        os.write(terminal, b"oocdata info si\t")
        assert wait_for(terminal, b"sim.h5 ")
        os.write(terminal, b"-k la\t")
        assert wait_for(terminal, b"label")
    finally:
        bash.kill()
        bash.wait()
        os.close(terminal)


def wait_for(terminal: int, text: bytes) -> bool:
    """Read until the text appears; False if the terminal closes, or is silent for a minute."""
    seen = b""
    while text not in seen:
        if not select.select([terminal], [], [], 60)[0]:
            return False
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # closed at the other end
            return False
    return True


@pytest.mark.parametrize(
    ("shell", "expected"),
    [("zsh", '_arguments \'*: :(("flow/u"\n"flow/v"))\''), ("fish", "flow/u\nflow/v")],
)
def test_zsh_and_fish_are_offered(folder: Path, shell: str, expected: str) -> None:
    line = "oocdata info sim.h5 -k fl"
    said = told(shell, _TYPER_COMPLETE_ARGS=line, _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert said.strip() == expected


@pytest.mark.parametrize(
    "path",
    ["", "none.h5", "text.txt", "broken.h5", "http://host/run.zarr", "/dev/null", "pipe", "."],
)
def test_keys_never_fail(folder: Path, path: str) -> None:
    os.mkfifo("pipe")  # opening it would wait for a writer
    words = ["oocdata", "info", *filter(None, [path]), "-k"]
    asked = {"COMP_WORDS": f"{shlex.join(words)} ", "COMP_CWORD": str(len(words))}
    assert told("bash", **asked).strip() == ""


def test_failures_of_completion_are_silent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> list[str]:
        raise RuntimeError("a bug")

    asked = {"COMP_WORDS": "oocdata info sim.h5 -k la", "COMP_CWORD": "4"}
    assert told("bash", **asked) == "label\n"
    monkeypatch.setattr(options, "list_datasets", fail)
    assert told("bash", **asked).strip() == ""


def test_completing_loads_nothing_heavy(folder: Path) -> None:
    code = f"""
import sys
sys.modules["tensorflow"] = sys.modules["zarr"] = sys.modules["matplotlib"] = None
{MAIN}
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "_OOCDATA_COMPLETE": "complete_bash",
            "COMP_WORDS": "oocdata info sim.h5 -k la",
            "COMP_CWORD": "4",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "label\n", done.stderr
