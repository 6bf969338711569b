"""Pictures that tools write: what they need, asked for before anything is read or measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from oocdata.errors import ArgumentError
from oocdata.tools.libraries import matplotlib

__all__ = ["PICTURES", "check_picture"]

PICTURES = (".png", ".jpg", ".jpeg", ".pdf", ".svg")


def check_picture(path: Path, suffixes: Sequence[str] = PICTURES) -> Path:
    """Return a picture's path, the home folder put in; raise if it can't be written there.

    Examples
    --------
    >>> check_picture(Path("a.png"))
    PosixPath('a.png')
    """
    path = path.expanduser()
    if path.suffix.lower() not in suffixes:
        raise ArgumentError(
            f"the picture's name must end in {', '.join(suffixes)}; got {path.name!r}."
        )
    if not path.parent.is_dir():
        raise ArgumentError(f"the picture's folder must exist; got '{path.parent}'.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentError(
            f"the picture's folder must be writable; got '{path.parent.absolute()}'."
        )
    matplotlib("figure")
    return path
