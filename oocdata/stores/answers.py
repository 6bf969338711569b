"""Define the answers of stores, and the errors for failed requests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from oocdata.errors import MissingFileError, SourceError

_STATUS = re.compile(r"status code: ((\d{3})[ \w-]*)")
_BROKEN_OFF = re.compile(r"source: HttpError\b")
_WRONG_RANGE = re.compile(r"source: UnexpectedRange\b")
_NO_RANGES = "RangeNotSupported|source: NotPartial|status code: 416"
_NOT_A_FOLDER = "kind: NotADirectory"
_ADDRESS = re.compile(r"\S+://\S+")
_HOST = re.compile(r"://(?:[^/\s@]*@)?([^/\s,?]+)")
_GIVEN_UP = re.compile(r"after (\d+) retries, max_retries: \1\b")

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


def is_wrong(error: Exception) -> bool:
    """Return whether an answer has another range or length than it should."""
    return isinstance(error, IncompleteAnswerError) or bool(_WRONG_RANGE.search(str(error)))


def may_pass(error: Exception, *, was_reached: bool) -> bool:
    """Return whether a failure may be temporary, though the client gave up.

    It requests the rest of an answer that is incomplete only if that has an ETag, and repeats other
    requests a few times; an address at which no server ever answered may have been mistyped.
    """
    text = str(error)
    if isinstance(error, TimeoutError | ConnectionError) or is_wrong(error):
        return True
    if was_reached and _GIVEN_UP.search(text):
        return True
    return type(error).__name__ == "GenericError" and bool(_BROKEN_OFF.search(text))


def has_status(error: Exception) -> bool:
    """Return whether a server answered, if only by a status."""
    return bool(_STATUS.search(str(error)))


_MESSAGES = {
    "status code: 40[13]|PermissionDenied|Unauthenticated": (
        "the store must give access to the object; it answered {status}. Give credentials as for "
        "the store's own tools, those of this bucket. For one that is public set "
        "AWS_SKIP_SIGNATURE=true, GOOGLE_SKIP_SIGNATURE=true or AZURE_SKIP_SIGNATURE=true. Where a "
        "web server needs a login, open the file through a store that has it: "
        "ooc.open(name, store=…)."
    ),
    _NO_RANGES: (
        "the server must answer requests for parts of a file; it sends the whole file "
        "whatever is asked for, or the file is empty. Download the file, or use another server."
    ),
    "^TimeoutError|kind: Timeout": (
        "the server must answer; several requests had no answer in time. Is it reachable?"
    ),
    "dns error": (
        "the server must be known by its name; {host!r} is not. Is the address right, and the name "
        "server reachable?"
    ),
    "ConnectionRefused": (
        "a server must listen at the address; {host!r} refuses connections. Is the address right, "
        "with its port? Is the server reachable, or the proxy that HTTP_PROXY or HTTPS_PROXY names?"
    ),
    r"InvalidCertificate\(\s*(\w+)": (
        "the server's certificate must be one that this machine trusts; the client says: {0}. "
        "For an authority of your own set SSL_CERT_FILE to its certificate."
    ),
    "status code": (
        "the server must send the object; it answered {status}. Is this the address of the file "
        "itself, and not of a page or a service? For S3, is AWS_REGION that of the bucket?"
    ),
    "panicked": (
        "the credentials in the environment must be plain text; the client can't send these. Does "
        "one end with a line break?"
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
    # In the middle of an answer, the client tells only the status.
    if tag and (name == "PreconditionError" or (found is not None and found[2] == "412")):
        return SourceError(CHANGED, path=url)
    message, match = next(
        (text, match)
        for pattern, text in _MESSAGES.items()
        if (match := re.search(pattern, f"{name}: {error}"))
    )
    status = "401 or 403" if found is None else f"{found[1].replace(' ', ' (', 1)})"
    text = _ADDRESS.sub("…", str(error).split("\n")[0])[:200]  # an address may have a signature
    host = found[1] if (found := _HOST.search(str(error))) else url
    # It stays the context of the error that is raised, and quotes what the server sent: for a
    # refused signature, what was signed.
    error.args = ()
    kind = ForbiddenError if name == "PermissionDeniedError" else SourceError
    return kind(message.format(*match.groups(), status=status, text=text, host=host), path=url)
