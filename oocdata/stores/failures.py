"""Failed requests: which may have another answer soon, and what users are told of those."""

from __future__ import annotations

import re
from typing import TypedDict

from oocdata.errors import MissingFileError, SourceError

__all__ = [
    "FIRST_TRIES", "TRIES", "ChangedError", "ForbiddenError", "TornError", "is_silent", "may_pass",
    "told",
]  # fmt: skip

TRIES = 8
"""Requests that are made for one answer, at most."""

FIRST_TRIES = 3
"""The same of a store that has never answered: its address is more likely wrong."""

_STATUS = re.compile(r"status code: (\d{3})")
_STAYS = re.compile(
    "dns error|failed to lookup|kind: (Redirect|Builder)|BareRedirect|Generic LocalFileSystem error"
    r"|source: (Header|NoContentRange|ParseContentRange)\b"
)
_NO_FOLDER = "kind: NotADirectory"
_ADDRESS = re.compile(r"\S+://\S+")


class ChangedError(SourceError):
    """The object is another version than the one asked for."""


class ForbiddenError(SourceError):
    """The store says 403: also of what is not there, to whoever may not list."""


class TornError(Exception):
    """An answer that is not as long as was asked for."""


def may_pass(error: Exception) -> bool:
    """Return whether the same request may have another answer soon."""
    if isinstance(error, TimeoutError | TornError | ConnectionError):
        return True
    if type(error).__name__ != "GenericError":
        return False
    if _STAYS.search(str(error)):
        return False
    status = _STATUS.search(str(error))
    # Without one, no answer came, or half of it.
    return status is None or status[1] in ("408", "429") or status[1][0] == "5"


def is_silent(error: Exception) -> bool:
    """Return whether nothing has answered: there may be no such server."""
    return isinstance(error, TimeoutError) or "kind: Connect," in str(error)


class _About(TypedDict):
    path: str


def told(error: Exception, url: str) -> SourceError:
    """Return what the client says as an error of this package, without headers and signatures."""
    kind, about = type(error).__name__, _About(path=url)
    status = _STATUS.search(str(error))
    if isinstance(error, FileNotFoundError) or _NO_FOLDER in str(error):
        return MissingFileError("the object must exist; the store has none of this name.", **about)
    if kind == "PermissionDeniedError":
        return ForbiddenError(
            "the store must allow the object to be read; it answered 403 (forbidden). Are the "
            "credentials those of this bucket? For one that is public: AWS_SKIP_SIGNATURE=true, "
            "GOOGLE_SKIP_SIGNATURE=true or AZURE_SKIP_SIGNATURE=true.",
            **about,
        )
    if kind == "UnauthenticatedError":
        return SourceError(
            "the store must know who asks; it answered 401 (unauthorised). Give credentials as for "
            "the store's own command-line tool.",
            **about,
        )
    if kind == "PreconditionError":
        return ChangedError("the object has changed", **about)
    if kind == "NotSupportedError":
        return SourceError(
            "the server must answer requests for parts of a file; it sends the whole file "
            "whatever is asked for. Download the file, or use another server.",
            **about,
        )
    if isinstance(error, TimeoutError):
        return SourceError(
            "the server must answer; several requests had no answer in time. Is it reachable?",
            **about,
        )
    if isinstance(error, TornError):
        return SourceError(
            f"the server must send the bytes that are asked for as they are; {error}. Does it "
            "compress what it sends (Content-Encoding)? Have it not do so.",
            **about,
        )
    if status is not None and status[1] == "416":
        return SourceError(
            "the object must have the bytes that are asked for; it is empty, or was cut short.",
            **about,
        )
    if status is not None:
        hint = " Try again later." if may_pass(error) else ""
        return SourceError(
            f"the server must send the object; it answered {status[1]}.{hint}", **about
        )
    words = _ADDRESS.sub("…", str(error).split("\n")[0])  # which may hold a signature
    return SourceError(
        f"the store must send the object; the client says: {words[:200]}. Is the address right, "
        "and the server reachable?",
        **about,
    )
