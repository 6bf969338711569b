"""Pictures that tools write: what they need, asked for before anything is read or measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from oocdata.errors import ArgumentError, MissingDependencyError

__all__ = ["PICTURES", "check_picture", "matplotlib"]

PICTURES = (".png", ".jpg", ".jpeg", ".pdf", ".svg")


def matplotlib(module: str = "") -> Any:
    """Import matplotlib, or a module of it; a `MissingDependencyError` says how to install it."""
    try:
        return import_module(f"matplotlib.{module}".rstrip("."))
    except ImportError as error:
        raise MissingDependencyError(
            f"pictures are drawn with matplotlib; {error}. Install it: "
            "pip install 'oocdata[pictures]'."
        ) from error


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
