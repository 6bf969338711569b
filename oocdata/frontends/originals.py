"""The original exception out of ``fit``, not TensorFlow's rendering of it.

TensorFlow makes a status of an exception that a Python function raises, a code and a text, and
gives whoever consumes the batch a `tf.errors.UnknownError` made of them; its type is lost. Here the
exception is kept under a token, which is random for the process, and the token stands in the text.
An error whose text holds the token of a kept exception is that exception; every other error, also
of the same text, is TensorFlow's own.

Between the status and the user's ``except``, in ``fit`` and in graphs of the user's, runs no code
but TensorFlow's. What it calls there is the constructor of its public error: so that is where the
exception is handed over, until the dataset that failed is gone. In a process in which no read
fails, TensorFlow stays as it is. (A TensorFlow that made its errors in another way would keep its
own, whose text has type, message, file, dataset and rows; a test of the whole way would tell.)
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Hashable
from typing import Any

__all__ = ["forget_originals", "passed_on"]

_MOST = 16
"""Exceptions kept: that of a batch that was read ahead and never asked for holds what was read."""

_process = secrets.token_hex(8)
_token = re.compile(rf"\[oocdata error {_process}-(\d+)\]")

# Re-entrant: the garbage collector may forget a reader while this thread keeps an exception.
_lock = threading.RLock()
_kept: dict[int, tuple[Hashable, BaseException]] = {}
_count = 0


def passed_on(error: BaseException, reader: Hashable) -> RuntimeError:
    """Return the exception to raise into TensorFlow, so that the user gets `error`.

    TensorFlow makes a `tf.errors.UnknownError` of it. For `reader` see `forget_originals`.
    """
    global _count
    if isinstance(error, StopIteration):
        # As it is, it would end a loop in silence; a generator does the same (PEP 479).
        wrapped = RuntimeError(f"reading a batch raised StopIteration: {error}")
        wrapped.__cause__, error = error, wrapped
    with _lock:
        _count += 1
        _kept[_count] = reader, error
        # What is dropped goes after the lock: it may end an iteration, which takes other locks.
        dropped = _kept.pop(min(_kept)) if len(_kept) > _MOST else None
        _error().__new__ = _new
        token = f"[oocdata error {_process}-{_count}]"
    del dropped
    return RuntimeError(f"{type(error).__name__}: {error} {token}")


def forget_originals(reader: Hashable) -> None:
    """Forget what a reader raised: it is gone. After the last, leave TensorFlow alone again."""
    with _lock:
        dropped = _drop(reader)
        if _count and not _kept and "__new__" in vars(_error()):  # else TensorFlow may be absent
            del _error().__new__
    del dropped


def _drop(reader: Hashable) -> list[Any]:
    """Return what a reader raised, which is not kept any more."""
    found = [number for number, (whose, _) in _kept.items() if whose == reader]
    return [_kept.pop(number) for number in found]


def _error() -> Any:
    from tensorflow import errors

    return errors.UnknownError


def _new(kind: type[Any], *args: Any, **keywords: Any) -> BaseException:
    if len(args) == 1 and isinstance(args[0], BaseException):
        # Python 3.11 makes the exception again when its type is not the one that was raised.
        return args[0]
    message = keywords.get("message", args[2] if len(args) > 2 else "")
    with _lock:
        for number in map(int, _token.findall(str(message))):
            if number in _kept:
                reader, original = _kept[number]
                dropped = _drop(reader)  # noqa: F841  # as above; the first is on its way out
                return original
    made: BaseException = Exception.__new__(kind, *args, **keywords)
    return made
