"""Parse URLs of stores, make the clients that read them, and list names in them.

The client is obstore (the object_store library of Apache Arrow): S3, Google Cloud Storage, Azure
and HTTP, with credentials from where the tools of each cloud take them. It makes the requests that
`oocdata.stores.link` schedules, and retries what may be temporary: 5xx, 408, 429, time-outs and
dropped connections.
"""

from __future__ import annotations

import fnmatch
import importlib
import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from oocdata.errors import ArgumentError, SourceError, UnknownFormatError, needed
from oocdata.stores.answers import to_source_error
from oocdata.stores.user_stores import FsspecClient, is_user_store, user_store_client
from oocdata.threads import Threads, in_order

_MAGIC = re.compile(r"[*[]")

_QUOTED = re.compile(r'".*"|(?<=file from ).*(?=: )', re.DOTALL)
"""What the client quotes of a setting. It may be a key, also where a path is expected."""

_LISTINGS = 32
"""Folders listed at a time."""

_RETRIES, _WRITE_RETRIES = 2, 8
"""Retries of a request by the client. `oocdata.stores.link` repeats all of them for a server that
has answered before; one that has not is an error within two seconds if it refuses connections."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
"""Seconds before a retry: drawn at random between the first pause and three times the pause before
it."""

_SILENCE, _WRITE_SILENCE = 20.0, 300.0
"""Seconds without a byte after which a request is made again; one that writes sends all its bytes
within that time."""

_SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "http", "https")


@cache
def obstore() -> Any:
    """Return the module ``obstore``."""
    with needed("files at URLs need obstore", "oocdata[stores]"):
        return importlib.import_module("obstore")


@dataclass(frozen=True, slots=True)
class Address:
    """Address of an object: a store, and a name in it."""

    root: str  #: the store: ``"s3://bucket"``, ``"https://host:8000"``
    name: str  #: the object's name in the store, not quoted; empty for the whole store

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse a URL whose scheme names a store.

        A URL with a credential, which would get into descriptions and messages, is refused.
        """
        # Messages quote no part of the URL that may be a credential.
        scheme = url.partition("://")[0].lower()
        try:
            parts = urlsplit(url)
            is_malformed = scheme != parts.scheme or not parts.netloc or parts.port == 0
        except ValueError:  # of the host or the port
            is_malformed = True
        if is_malformed:
            raise ArgumentError(
                "`target` must be a URL with a bucket or a host, s3://bucket/name or "
                "https://host:8000/name, or a path; got one that can't be read. (It is not shown, "
                "because it may hold a password.)"
            )
        # abfss://container@account holds no credential.
        if "@" in parts.netloc and not (scheme in ("abfs", "abfss") and parts.password is None):
            raise ArgumentError(
                "`target` must be a URL without a user and password, which would get into "
                f"descriptions; got one for {parts.hostname}. Put them where the tools of that "
                "store look for them."
            )
        if parts.query or parts.fragment:
            raise ArgumentError(
                "`target` must be a URL without `?` and `#`, because what follows may be a "
                f"signature, and parts of the file are asked for; got one for {parts.hostname}. "
                "Use the address of the object itself, with credentials from the environment."
            )
        if not is_user_store(url) and scheme not in _SCHEMES:
            raise UnknownFormatError(
                f"a URL must start with {'://, '.join(_SCHEMES[:-1])}:// or https://; got "
                f"{scheme}://. Open another store by fsspec or obstore: ooc.open(name, store=…).",
                path=url,
            )
        return cls(f"{scheme}://{parts.netloc}", unquote(parts.path.strip("/")))

    @property
    def url(self) -> str:
        """The quoted URL, for messages and descriptions."""
        return f"{self.root}/{quote(self.name)}" if self.name else self.root

    def __truediv__(self, name: str) -> Address:
        return Address(self.root, "/".join(part for part in (self.name, name) if part))

    @property
    def store(self) -> Any:
        """The client of the store."""
        return user_store_client(self.root) if is_user_store(self.root) else client(self.root)


@lru_cache(maxsize=64)
def client(root: str, *, writes: bool = False) -> Any:
    """Return the client of a store: one for all its objects, so that they share connections."""
    stores = obstore().store
    options: dict[str, Any] = {
        # These options replace those of the environment: an endpoint at `http://` is enough, as for
        # the tools of the clouds. A long answer over a slow link is no reason for an error.
        "client_options": {
            "timeout": "1 day",
            "read_timeout": timedelta(seconds=_WRITE_SILENCE if writes else _SILENCE),
            "connect_timeout": "5s",
            "allow_http": not root.startswith("https"),
        },
        "retry_config": {
            "max_retries": _WRITE_RETRIES if writes else _RETRIES,
            "backoff": {
                "init_backoff": timedelta(seconds=_FIRST_PAUSE),
                "max_backoff": timedelta(seconds=_LONGEST_PAUSE),
                "base": 3,
            },
            "retry_timeout": timedelta(minutes=10 if writes else 2),
        },
    }
    if root.startswith("http"):  # `from_url` would take some hosts for buckets
        return stores.HTTPStore.from_url(root, **options)
    if root.startswith("s3://") and (provider := _aws_credentials()) is not None:
        options["credential_provider"] = provider
    try:
        return stores.from_url(root, **options)
    except Exception as error:  # as in `list_names`
        message = _QUOTED.sub("…", str(error).split("\n\nDebug source")[0])
        raise SourceError(
            f"the store's settings must be complete; the client says: {message}.", path=root
        ) from None


def _aws_credentials() -> Any:
    """Return a provider of credentials as for the tools of AWS: profiles, single sign-on, roles.

    None if the environment holds credentials or boto3 is not installed: obstore then looks in the
    environment, and requests the role of the machine.
    """
    names = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    if any(os.environ.get(name) for name in names):
        return None
    try:
        session = importlib.import_module("boto3").Session()
        if session.get_credentials() is None:
            return None
        return importlib.import_module("obstore.auth.boto3").Boto3CredentialProvider(session)
    except ImportError:
        return None


def list_names(address: Address) -> Iterator[tuple[str, bool]]:
    """Yield the names directly below an address, and whether each is a folder.

    Raise `SourceError` if the store can't list, as over HTTP.
    """
    if address.root.startswith("http"):
        raise SourceError(
            "names must be given one by one over HTTP, which can't list objects; got a "
            "pattern or a folder. Give a list of URLs.",
            path=address.url,
        )
    prefix = f"{address.name}/" if address.name else ""
    try:
        if isinstance(address.store, FsspecClient):
            yield from address.store.list(address.name)
            return
        listed = obstore().list_with_delimiter(address.store, prefix or None)
    except Exception as error:  # the errors of clients have no other common class
        client.cache_clear()  # as in `oocdata.stores.link`
        raise to_source_error(error, address.url) from None
    for folder in listed["common_prefixes"]:
        yield folder.rstrip("/").removeprefix(prefix), True
    for file in listed["objects"]:
        if file["path"] != prefix.rstrip("/"):
            yield file["path"].removeprefix(prefix), False


def matching(url: str) -> list[str]:
    """Return the URLs of the objects or folders that a pattern matches.

    ``*`` and ``[…]`` match within one step of the name, as in a file system's glob; a step that is
    a name itself is no pattern. Raise `SourceError` if the store can't list, as over HTTP.
    """
    address = Address.of(url)
    steps = address.name.split("/")
    matches, is_pattern = [Address(address.root, "")], False
    for number, step in enumerate(steps):
        is_pattern = is_pattern or bool(_MAGIC.search(step))
        if not is_pattern:
            matches = [one / step for one in matches]
            continue
        # Plain steps after a pattern are looked up too: not every folder has them.
        with closing(Threads(_LISTINGS, "oocdata-list")) as threads:
            below = in_order(threads, lambda one: list(list_names(one)), matches, _LISTINGS)
            is_last, above, matches = number == len(steps) - 1, matches, []
            for one, names in zip(above, below, strict=True):
                listed = dict.fromkeys(name for name, is_folder in names if is_folder or is_last)
                match = str.__eq__ if step in listed else fnmatch.fnmatchcase
                matches += [one / name for name in listed if match(name, step)]
    return [one.url for one in matches]
