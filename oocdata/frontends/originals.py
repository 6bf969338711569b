"""The original exception out of ``fit``, not TensorFlow's rendering of it.

An exception in a Python function that TensorFlow calls becomes a status, a code and a text, and
whoever consumes the batch gets a `tf.errors.UnknownError` made of those. Here the exceptions that a
reader raised are kept; when TensorFlow makes an error whose text holds a kept one, the original
comes out instead, from eager code, graph functions and ``fit`` alike.

The place is ``__new__`` of two public classes, which Python lets return something else. A
TensorFlow that no longer makes its errors so keeps its own, whose text has the original's type,
message, file, dataset and rows; a test of the whole way tells us.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from typing import Any

__all__ = ["forget_originals", "install", "keep_original", "original_in"]

# Re-entrant: the garbage collector may forget a reader while this thread keeps an exception.
_lock = threading.RLock()
# Bounded: an error in a batch that was read ahead and never asked for stays here, and its traceback
# with all that was being read.
_kept: deque[tuple[Hashable, str, BaseException]] = deque(maxlen=16)


def keep_original(error: BaseException, reader: Hashable) -> None:
    """Remember an exception of a reader that is about to be raised into TensorFlow."""
    with _lock:
        _kept.append((reader, f"{type(error).__name__}: {error}", error))


def forget_originals(reader: Hashable) -> None:
    """Forget what a reader raised: it is gone, or its first exception is on its way out."""
    with _lock:
        left = [kept for kept in _kept if kept[0] != reader]
        _kept.clear()
        _kept.extend(left)


def original_in(message: str) -> BaseException | None:
    """Return the kept exception whose type and text stand in a message, newest first."""
    with _lock:
        kept = list(_kept)
    for reader, text, error in reversed(kept):
        if text in message:
            forget_originals(reader)
            return error
    return None


def install() -> None:
    """Make TensorFlow's errors give way to the originals they were made of."""
    from tensorflow import errors

    # What TensorFlow makes of most exceptions, and of ValueError and TypeError.
    for kind in (errors.UnknownError, errors.InvalidArgumentError):
        if "__new__" not in vars(kind):
            kind.__new__ = _new


def _new(kind: type[Any], *args: Any, **keywords: Any) -> BaseException:
    if len(args) == 1 and isinstance(args[0], BaseException):
        # Python 3.11 makes the exception again when its type is not the one that was raised.
        return args[0]
    message = keywords.get("message", args[2] if len(args) > 2 else "")
    original = original_in(str(message)) if _kept else None
    if original is not None:
        return original
    made: BaseException = Exception.__new__(kind, *args, **keywords)
    return made
