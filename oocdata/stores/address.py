"""Which store a URL leads to, and the client that reads it.

The client is obstore (the object_store library of Apache Arrow): S3, Google Cloud Storage, Azure
and HTTP, with credentials from where the tools of each cloud take them. It is asked for single
ranges; what is asked for when, and what happens when that fails, is `oocdata.stores.link`'s.
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from oocdata.errors import (
    ArgumentError,
    MissingDependencyError,
    OocdataError,
    SourceError,
    UnknownFormatError,
)
from oocdata.stores.failures import told
from oocdata.stores.given import FileSystem, given_store, is_given

__all__ = ["Address", "client", "list_names", "matching", "obstore"]

_MAGIC = re.compile(r"[*[]")

_LISTINGS = 32
"""Folders that are listed at a time."""

_SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "http", "https")


def obstore() -> Any:
    """Return the module ``obstore``."""
    try:
        return importlib.import_module("obstore")
    except ImportError as error:
        raise MissingDependencyError(
            f"files at URLs need obstore; {error}. Install it: pip install oocdata[stores]."
        ) from error


@dataclass(frozen=True, slots=True)
class Address:
    """Where an object lies.

    Examples
    --------
    >>> address = Address.of("https://host/data/a%20b.npy")
    >>> address.name, address.url, (address / "c").url
    ('data/a b.npy', 'https://host/data/a%20b.npy', 'https://host/data/a%20b.npy/c')
    """

    root: str  #: the store: ``"s3://bucket"``, ``"https://host:8000"``
    name: str  #: the object's name in it, not quoted; may be empty for a whole store

    @classmethod
    def of(cls, url: str) -> Address:
        """Return the address that a URL is, if a store is known by its scheme.

        One that holds a credential, which would get into descriptions and messages, is refused.
        """
        scheme = url.partition("://")[0].lower()
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ArgumentError(f"`target` must be a URL that can be read; {error}.") from None
        if "@" in parts.netloc and scheme not in ("abfs", "abfss"):
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
        # Said after the rest: what is echoed must hold no credential.
        if not is_given(url) and scheme not in _SCHEMES:
            raise UnknownFormatError(
                f"a URL must start with {'://, '.join(_SCHEMES[:-1])}:// or https://; got "
                f"{scheme}://. Open another store by fsspec or obstore: ooc.open(name, store=…).",
                path=url,
            )
        return cls(f"{scheme}://{parts.netloc}", unquote(parts.path.strip("/")))

    @property
    def url(self) -> str:
        """As it is told and described: quoted, without credentials."""
        return f"{self.root}/{quote(self.name)}" if self.name else self.root

    def __truediv__(self, name: str) -> Address:
        return Address(self.root, "/".join(part for part in (self.name, name) if part))

    @property
    def store(self) -> Any:
        """The client of the store."""
        try:
            return given_store(self.root) if is_given(self.root) else client(self.root)
        except OocdataError:
            raise
        except Exception as error:  # as in `list_names`
            words = str(error).split("\n")[0]
            raise SourceError(
                f"the store's settings must be complete; the client says: {words}.", path=self.url
            ) from None


@lru_cache(maxsize=64)
def client(root: str, *, writes: bool = False) -> Any:
    """Return the client of a store; one for all its objects, so that connections are shared.

    One that writes makes requests again by itself; those that read are the link's to make again.
    """
    obstore()
    stores = importlib.import_module("obstore.store")
    options: dict[str, Any] = {
        # Times out by what was measured (`link`), not by a fixed number of seconds.
        "client_options": {"timeout": "1 day", "connect_timeout": "10s"},
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
    }
    if writes:
        options["client_options"]["timeout"] = "5 minutes"
        options["retry_config"] = {"max_retries": 8, "retry_timeout": timedelta(minutes=10)}
    # Options that are given stand for all that the environment says of the client. A server of
    # one's own: the tools of the clouds ask for no more than its URL.
    told = [os.environ.get(f"{cloud}_ALLOW_HTTP", "") for cloud in ("AWS", "GOOGLE", "AZURE")]
    urls = [value for name, value in os.environ.items() if "ENDPOINT" in name.upper()]
    given = [root, os.environ.get("GOOGLE_BASE_URL", ""), *urls]
    if root.startswith("gs://") and (emulator := os.environ.get("STORAGE_EMULATOR_HOST")):
        # As Google's own tools have it: without credentials, perhaps without a scheme.
        given.append(emulator if "://" in emulator else f"http://{emulator}")
        account = {"gcs_base_url": given[-1], "disable_oauth": True}
        empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        options["service_account_key"] = json.dumps({**account, **empty})
    if "true" in map(str.lower, told) or any(one.startswith("http://") for one in given):
        options["client_options"]["allow_http"] = True
    if root.startswith("http"):  # whatever the host: `from_url` takes some for buckets
        return stores.HTTPStore.from_url(root, **options)
    if root.startswith("s3://"):
        provider = _aws_credentials()
        if provider is not None:
            options["credential_provider"] = provider
    return stores.from_url(root, **options)


def _aws_credentials() -> Any:
    """Return what finds credentials as the tools of AWS do: profiles, single sign-on, roles.

    None where the environment says all, or boto3 is not installed: then obstore looks in the
    environment and asks the machine for its role.
    """
    told = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    if any(os.environ.get(name) for name in told):
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

    A `SourceError` if the store can't list; HTTP can't.
    """
    if address.root.startswith("http"):
        raise SourceError(
            "names must be given one by one over HTTP, which can't list what there is; got a "
            "pattern or a folder. Give a list of URLs.",
            path=address.url,
        )
    prefix = f"{address.name}/" if address.name else ""
    if isinstance(address.store, FileSystem):
        yield from address.store.list(address.name)
        return
    try:
        found = obstore().list_with_delimiter(address.store, prefix or None)
    except Exception as error:  # obstore's own classes have no common one but Exception
        raise told(error, address.url) from None
    for folder in found["common_prefixes"]:
        yield folder.rstrip("/").removeprefix(prefix), True
    for one in found["objects"]:
        if one["path"] != prefix.rstrip("/"):
            yield one["path"].removeprefix(prefix), False


def matching(url: str) -> list[str]:
    """Return the URLs of the objects, or of the folders of them, that a pattern matches.

    ``*`` and ``[…]`` match within one step of the name, as in a file system's glob; a step that is
    a name itself is no pattern. A store that can't list is a `SourceError`; HTTP can't.
    """
    address = Address.of(url)
    steps = address.name.split("/")
    found, drawn = [Address(address.root, "")], False
    for number, step in enumerate(steps):
        drawn = drawn or bool(_MAGIC.search(step))
        if not drawn:
            found = [one / step for one in found]
            continue
        # Also a step without a pattern is looked for, after one: not each folder has it.
        with ThreadPoolExecutor(_LISTINGS) as threads:
            below = threads.map(lambda one: list(list_names(one)), found)
            found = [
                one / name
                for one, names in zip(found, below, strict=True)
                for name in _chosen(names, step, last=number == len(steps) - 1)
            ]
    return [one.url for one in found]


def _chosen(names: list[tuple[str, bool]], step: str, *, last: bool) -> list[str]:
    """Return the names, each once, that a step of a pattern matches; folders, but for the last."""
    some = dict.fromkeys(name for name, is_folder in names if is_folder or last)
    return [step] if step in some else [name for name in some if fnmatch.fnmatchcase(name, step)]
