"""TensorFlow for the tools: on the CPU, and silent."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

from oocdata.errors import MissingDependencyError

__all__ = ["import_tensorflow"]


def import_tensorflow(needed: str = "the demonstration trains") -> Any:
    """Import TensorFlow on the CPU, without the lines it writes to standard error."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    # What C++ code writes before its log level is set can only be caught at the descriptor.
    sys.stderr.flush()
    usual = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            import tensorflow as tf

            tf.constant(0)  # the devices are looked for, and complained about, only now
        except ImportError as error:
            raise MissingDependencyError(
                f"{needed} with TensorFlow; {error}. Install it: pip install tensorflow."
            ) from error
        finally:
            os.dup2(usual, 2)
            os.close(usual)
    return tf
