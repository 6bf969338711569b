"""Classify failed requests: which are retried, and which errors users get."""

from __future__ import annotations

import re
from typing import TypedDict

from oocdata.errors import MissingFileError, SourceError

__all__ = [
    "FIRST_TRIES",
    "TRIES",
    "ChangedError",
    "ForbiddenError",
    "IncompleteAnswerError",
    "is_temporary",
    "is_unanswered",
    "to_source_error",
]  # fmt: skip

TRIES = 8
"""Largest number of requests for one answer."""

FIRST_TRIES = 3
"""Largest number for a store that has never answered: its address is more likely wrong."""

_STATUS = re.compile(r"status code: (\d{3})")
_PERMANENT = re.compile(
    "dns error|failed to lookup|kind: (Redirect|Builder)|BareRedirect|Generic LocalFileSystem error"
    r"|source: (Header|NoContentRange|ParseContentRange)\b"
)
_NOT_A_FOLDER = "kind: NotADirectory"
_ADDRESS = re.compile(r"\S+://\S+")


class ChangedError(SourceError):
    """The object is not the version that was requested."""


class ForbiddenError(SourceError):
    """The store answered 403; it does so for missing objects too, without permission to list."""


class IncompleteAnswerError(Exception):
    """An answer does not have the requested length."""


def is_temporary(error: Exception) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, TimeoutError | IncompleteAnswerError | ConnectionError):
        return True
    if type(error).__name__ != "GenericError":
        return False
    if _PERMANENT.search(str(error)):
        return False
    status = _STATUS.search(str(error))
    # Without a status, there was no answer or half of it.
    return status is None or status[1] in ("408", "429") or status[1][0] == "5"


def is_unanswered(error: Exception) -> bool:
    """Return whether no server has answered: perhaps there is none."""
    return isinstance(error, TimeoutError) or "kind: Connect," in str(error)


class _Where(TypedDict):
    path: str


def to_source_error(error: Exception, url: str) -> SourceError:
    """Return an error of the client as one of this package, without headers and signatures."""
    kind, where = type(error).__name__, _Where(path=url)
    status = _STATUS.search(str(error))
    if isinstance(error, FileNotFoundError) or _NOT_A_FOLDER in str(error):
        return MissingFileError("the object must exist; the store has none of this name.", **where)
    if kind == "PermissionDeniedError":
        return ForbiddenError(
            "the store must allow the object to be read; it answered 403 (forbidden). Are the "
            "credentials those of this bucket? For one that is public: AWS_SKIP_SIGNATURE=true, "
            "GOOGLE_SKIP_SIGNATURE=true or AZURE_SKIP_SIGNATURE=true.",
            **where,
        )
    if kind == "UnauthenticatedError":
        return SourceError(
            "the store must know who asks; it answered 401 (unauthorised). Give credentials as for "
            "the store's own command-line tool.",
            **where,
        )
    if kind == "PreconditionError":
        return ChangedError("the object has changed", **where)
    if kind == "NotSupportedError":
        return SourceError(
            "the server must answer requests for parts of a file; it sends the whole file "
            "whatever is asked for. Download the file, or use another server.",
            **where,
        )
    if isinstance(error, TimeoutError):
        return SourceError(
            "the server must answer; several requests had no answer in time. Is it reachable?",
            **where,
        )
    if isinstance(error, IncompleteAnswerError):
        return SourceError(
            f"the server must send the bytes that are asked for as they are; {error}. Does it "
            "compress what it sends (Content-Encoding)? Have it not do so.",
            **where,
        )
    if status is not None and status[1] == "416":
        return SourceError(
            "the object must have the bytes that are asked for; it is empty, or was cut short.",
            **where,
        )
    if status is not None:
        hint = " Try again later." if is_temporary(error) else ""
        return SourceError(
            f"the server must send the object; it answered {status[1]}.{hint}", **where
        )
    message = _ADDRESS.sub("…", str(error).split("\n")[0])  # an address may have a signature
    return SourceError(
        f"the store must send the object; the client says: {message[:200]}. Is the address right, "
        "and the server reachable?",
        **where,
    )
