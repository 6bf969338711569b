"""The loops of the README run as they stand there."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()

BEFORE = """
import numpy as np, oocdata as ooc
np.save("ds.npy", np.random.default_rng(0).random((500, 16, 16), "f4"))
loader = ooc.open("ds.npy").next_frame().batches(32, shuffle=True, seed=7)
"""
AFTER = {
    "torch": "assert torch.isfinite(loss) and x.shape[1:] == (16, 16)",
    "jax": "assert 0 < float(loss) < 1 and 0 < float(weight) < 1",
}


def block(heading: str, first: str) -> str:
    """Return the block of Python under a heading that begins with a line."""
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks: list[str] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (found,) = [code for code in blocks if code.startswith(first)]
    return found


@pytest.mark.parametrize("library", AFTER)
def test_loops_of_other_frameworks(library: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    code = BEFORE + block("PyTorch and JAX", f"import {library}") + AFTER[library]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
