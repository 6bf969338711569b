"""Define the answers of stores; classify failed requests: which are retried, and their errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from oocdata.errors import MissingFileError, SourceError

TRIES = 8
"""Largest number of requests for one answer."""

FIRST_TRIES = 3
"""Largest number for a store that has never answered: its address is more likely wrong."""

_STATUS = re.compile(r"status code: ((\d{3})[ \w-]*)")
_TEMPORARY = re.compile("408|429|5(?!01|05)")
"""Beginnings of the statuses of answers that may differ next time."""

_NO_RANGES = re.compile("RangeNotSupported|source: NotPartial")
_PERMANENT = re.compile(
    "dns error|failed to lookup|kind: Builder|Generic LocalFileSystem error|InvalidCertificate"
    r"|source: (Header|NoContentRange|ParseContentRange)\b|kind: Redirect|BareRedirect"
    rf"|status code: 30[1278]|{_NO_RANGES.pattern}"
)
_NOT_A_FOLDER = "kind: NotADirectory"
_ADDRESS = re.compile(r"\S+://\S+")

CHANGED = "the object must be as it was when it was opened; it has changed. Open it again."


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes of an object, and its version."""

    data: Any  #: a buffer
    nbytes: int  #: of the whole object
    tag: str  #: the server's name of the version (ETag); empty where it gives none
    modified: int  #: nanoseconds since the epoch, to the second


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
    return status is None or _TEMPORARY.match(status[1]) is not None


def is_unanswered(error: Exception) -> bool:
    """Return whether no server has answered: perhaps there is none."""
    return isinstance(error, TimeoutError) or "kind: Connect," in str(error)


_MESSAGES = {
    "status code: 40[13]|PermissionDenied|Unauthenticated": (
        "the store must give access to the object; it answered {status}. Give credentials as for "
        "the store's own tools, those of this bucket. For one that is public set "
        "AWS_SKIP_SIGNATURE=true, GOOGLE_SKIP_SIGNATURE=true or AZURE_SKIP_SIGNATURE=true. Where a "
        "web server needs a login, open the file through a store that has it: "
        "ooc.open(name, store=…)."
    ),
    f"{_NO_RANGES.pattern}|status code: 416": (
        "the server must answer requests for parts of a file; it sends the whole file "
        "whatever is asked for, or the file is empty. Download the file, or use another server."
    ),
    "^TimeoutError": (
        "the server must answer; several requests had no answer in time. Is it reachable?"
    ),
    r"InvalidCertificate\(\s*(\w+)": (
        "the server's certificate must be one that this machine trusts; the client says: {0}. "
        "For an authority of your own set SSL_CERT_FILE to its certificate."
    ),
    "status code": (
        "the server must send the object; it answered {status}. Is this the address of the file "
        "itself, and not of a page or a service? For S3, is AWS_REGION that of the bucket?"
    ),
    "": (
        "the store must send the object; the client says: {text}. Is the address right, and the "
        "server reachable?"
    ),
}
"""Patterns in the name and text of an error of the client, and the message for the first match."""


def to_source_error(error: Exception, url: str, tag: str = "") -> SourceError:
    """Return an error of the client as one of this package, without headers and signatures.

    `tag` is the version that was asked for, if any.
    """
    name, found = type(error).__name__, _STATUS.search(str(error))
    # The client calls 405 of a web server "not found" too: then a chunk would count as absent.
    is_missing = isinstance(error, FileNotFoundError) and (found is None or found[2] == "404")
    if is_missing or _NOT_A_FOLDER in str(error):
        return MissingFileError("the object must exist; the store has none of this name.", path=url)
    if name == "PreconditionError" and tag:
        return SourceError(CHANGED, path=url)
    message, match = next(
        (text, match)
        for pattern, text in _MESSAGES.items()
        if (match := re.search(pattern, f"{name}: {error}"))
    )
    status = "401 or 403" if found is None else f"{found[1].replace(' ', ' (', 1)})"
    text = _ADDRESS.sub("…", str(error).split("\n")[0])[:200]  # an address may have a signature
    kind = ForbiddenError if name == "PermissionDeniedError" else SourceError
    return kind(message.format(*match.groups(), status=status, text=text), path=url)
