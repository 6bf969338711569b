"""Import optional libraries; the error for a missing one says how to install it."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from typing import Any

from oocdata.errors import needed


def matplotlib(module: str = "") -> Any:
    """Import matplotlib, or one of its modules."""
    with needed("pictures are drawn with matplotlib", "'oocdata[pictures]'"):
        return import_module(f"matplotlib.{module}".rstrip("."))


def import_tensorflow(use: str = "the demonstration trains") -> Any:
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
            with needed(f"{use} with TensorFlow", "tensorflow"):
                tensorflow: Any = import_module("tensorflow")
            tensorflow.constant(0)  # makes TensorFlow look for devices, with more warnings
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
    return tensorflow
