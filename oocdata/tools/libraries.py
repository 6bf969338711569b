"""Import optional libraries, and check the name of a picture, before anything is read.

The error for a missing library says how to install it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from oocdata.errors import ArgumentError, needed

_SUFFIXES = (".png", ".jpg", ".jpeg", ".pdf", ".svg", ".gif", ".webp")


def library(module: str, use: str, install: str) -> Any:
    """Import a module; if that fails, raise an error with its use and the pip command."""
    with needed(use, install):
        return import_module(module)


def matplotlib(module: str = "") -> Any:
    """Import matplotlib, or one of its modules."""
    name = f"matplotlib.{module}".rstrip(".")
    return library(name, "pictures are drawn with matplotlib", "'oocdata[pictures]'")


def check_picture(path: Path) -> Path:
    """Return the path of a picture or film with ``~`` expanded; raise if its format is unknown."""
    path = path.expanduser()
    if path.suffix.lower() not in _SUFFIXES:
        raise ArgumentError(
            f"the picture's name must end in {', '.join(_SUFFIXES)}; got {path.name!r}."
        )
    matplotlib("figure")
    return path


def import_tensorflow(needed: str = "the demonstration trains") -> Any:
    """Import TensorFlow for the CPU, and discard what it writes to standard error meanwhile."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    # C++ code writes before its log level is set: only the descriptor can be redirected.
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as discarded:
        os.dup2(discarded.fileno(), 2)
        try:
            tensorflow = library("tensorflow", f"{needed} with TensorFlow", "tensorflow")
            tensorflow.constant(0)  # makes TensorFlow look for devices, with more warnings
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
    return tensorflow
