"""Make ``fit`` raise the original exception instead of TensorFlow's rendering of it.

TensorFlow converts an exception of a Python function to a text, and raises a
`tf.errors.UnknownError` with it. Here the exception is kept under a token, random for the process,
which is put into the text. An error whose text holds the token of a kept exception stands for that
exception; all other errors are TensorFlow's own.

Between the text and the user's ``except`` only code of TensorFlow and Keras runs: in `fit` and
`evaluate`, a `tf.function`, a loop over a dataset derived from `to_tf` or distributed. (An iterator
and a `reduce` of our own would see only errors of `to_tf` itself.) So the exception is substituted
in the constructor of its public error class, until the dataset that failed is gone; if no read
fails, TensorFlow is not modified. (A TensorFlow that made its errors in another way would raise its
own, whose text has type, message, file, dataset and rows.)
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Hashable
from typing import Any

from oocdata.errors import OocdataError, traceback_text

_MOST = 16
"""Most exceptions kept: the traceback of a failed read that nobody consumes keeps its arrays
alive."""

_process = secrets.token_hex(8)
_token = re.compile(rf"\[oocdata error {_process}-(\d+)\]")

# Re-entrant: the garbage collector may call `forget_originals` in a thread that holds the lock.
_lock = threading.RLock()
_kept: dict[int, tuple[Hashable, BaseException]] = {}
_count = 0


def error_for_tensorflow(error: BaseException, reader: Hashable) -> RuntimeError:
    """Return the exception to raise into TensorFlow, so that the user gets `error`.

    TensorFlow makes a `tf.errors.UnknownError` of it. For `reader`, see `forget_originals`.
    """
    global _count
    if isinstance(error, StopIteration):
        # Unwrapped, it would silently end a loop; generators convert it too (PEP 479).
        wrapped = RuntimeError(f"reading a batch raised StopIteration: {error}")
        wrapped.__cause__, error = error, wrapped
    with _lock:
        _count += 1
        _kept[_count] = reader, error
        # Freed after the lock is released: its end may end an iteration, which takes other locks.
        dropped = _kept.pop(min(_kept)) if len(_kept) > _MOST else None
        _error_class().__new__ = _new
        token = f"[oocdata error {_process}-{_count}]"
    del dropped
    return RuntimeError(f"{type(error).__name__}: {error} {token}")


def forget_originals(reader: Hashable) -> None:
    """Drop a reader's exceptions; when none are left, restore TensorFlow's error class."""
    with _lock:
        dropped = _drop(reader)
        # Without a kept exception so far, TensorFlow may not be installed.
        if _count and not _kept and "__new__" in vars(_error_class()):
            del _error_class().__new__
    del dropped


def _drop(reader: Hashable) -> list[Any]:
    """Remove the exceptions of a reader from the table, and return them."""
    numbers = [number for number, (owner, _) in _kept.items() if owner == reader]
    return [_kept.pop(number) for number in numbers]


def _error_class() -> Any:
    from tensorflow import errors

    return errors.UnknownError


def _new(kind: type[Any], *args: Any, **keywords: Any) -> BaseException:
    if len(args) == 1 and isinstance(args[0], BaseException):
        # Python 3.11 calls the class again if the exception has another type than was raised, and
        # then replaces its traceback. (Messages of this package say it all.)
        original: BaseException = args[0]
        notes = "".join(getattr(original, "__notes__", ()))
        if not isinstance(original, OocdataError) and "Traceback" not in notes:
            original.add_note(f"In a thread that reads:\n\n{traceback_text(original)}")
        return original
    message = keywords.get("message", args[2] if len(args) > 2 else "")
    with _lock:
        for number in map(int, _token.findall(str(message))):
            if number in _kept:
                reader, original = _kept[number]
                dropped = _drop(reader)  # noqa: F841  # freed after the lock, as above
                return original
    error: BaseException = Exception.__new__(kind, *args, **keywords)
    return error
