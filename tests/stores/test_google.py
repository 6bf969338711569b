"""Read, list and write buckets of Google Cloud Storage, and keep credentials out of messages."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
import warnings
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from numpy.testing import assert_array_equal
from servers.faults import Refuse
from servers.google import Google
from servers.proxy import FaultProxy
from stored_layouts import numbers

import oocdata as ooc
from oocdata.describe import as_json, fingerprint
from oocdata.errors import MissingFileError, SourceError
from oocdata.stores import address as addresses
from oocdata.stores import link as links
from oocdata.stores.address import Address, client, list_names

ROWS = numbers((60, 4, 6))
SECRET = "AbraCadabra0815"


@pytest.fixture(autouse=True)
def new_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reset clients, which take credentials when they are made."""
    monkeypatch.setattr(addresses, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(addresses, "_LONGEST_PAUSE", 0.002)
    monkeypatch.setattr(links, "_PAUSE", 0.001)
    client.cache_clear()
    yield
    client.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("google")
    bucket = folder / "bucket"
    (bucket / "parts").mkdir(parents=True)
    np.save(bucket / "a.npy", ROWS)
    for number, part in enumerate(np.array_split(ROWS, 12)):
        np.save(bucket / "parts" / f"x {number}.npy", part)
    with h5py.File(bucket / "a.h5", "w") as file:
        file.create_dataset("u", data=ROWS, chunks=(8, 4, 6), compression="gzip")
    group = zarr.create_group(bucket / "g.zarr")
    group.create_array("inner/u", data=ROWS, chunks=(8, 4, 6))
    group.create_array("inner/v", data=ROWS + 1, chunks=(4, 4, 6), shards=(16, 4, 6))
    return folder


@pytest.fixture
def google(folder: Path) -> Iterator[Google]:
    with Google(folder, names=5) as server:  # a listing has several pages
        yield server


def check(view: ooc.View, rows: np.ndarray = ROWS) -> None:
    loader = view.batches(16, shuffle=True)
    for step, batch in enumerate(loader):
        assert_array_equal(batch, rows[loader.positions(step)])


@pytest.fixture
def unsigned(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BASE_URL", google.url)
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")


@pytest.mark.usefixtures("unsigned")
def test_objects_of_a_bucket() -> None:
    check(ooc.open("gs://bucket/a.npy"))
    check(ooc.open("gs://bucket/a.h5", "u"))
    check(ooc.open("gs://bucket/g.zarr/inner/u"))
    check(ooc.open("gs://bucket/g.zarr", "inner/v"), ROWS + 1)
    check(ooc.open("gs://bucket/g.zarr", "inner/*"), np.concatenate([ROWS, ROWS + 1]))
    check(ooc.open("gs://bucket/parts/x*.npy"))
    check(ooc.open("gs://bucket/*/x [0-9].npy"), ROWS[:50])
    assert dict(list_names(Address.of("gs://bucket/g.zarr"))) == {"inner": True, "zarr.json": False}
    for url in ("gs://bucket/gone.npy", "gs://no-bucket/a.npy"):
        with pytest.raises(MissingFileError, match="must exist"):
            ooc.open(url)


@pytest.mark.usefixtures("unsigned")
def test_an_object_that_is_written_anew(google: Google) -> None:
    path = google.folder / "bucket" / "changes.npy"
    np.save(path, ROWS)
    view = ooc.open("gs://bucket/changes.npy")
    np.save(path, ROWS + 1)
    with pytest.raises(SourceError, match="changed"):
        view.take([3])


def test_an_array_is_written(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BASE_URL", google.url)
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", SECRET)
    ooc.convert("gs://bucket/a.h5", "gs://bucket/made.zarr", key="u", verify=True)
    assert_array_equal(zarr.open_array(google.folder / "bucket" / "made.zarr")[:], ROWS)
    check(ooc.open("gs://bucket/made.zarr"))


# ---- credentials ----


def service_account() -> tuple[str, rsa.RSAPublicKey]:
    """Return the key file of a service account, and the key that verifies its signatures."""
    key = rsa.generate_private_key(65537, 2048)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    about = {"type": "service_account", "private_key": text, "private_key_id": f"id{SECRET}"}
    return json.dumps({**about, "client_email": f"{SECRET}@example.org"}), key.public_key()


def decoded(part: str) -> bytes:
    """Return the bytes of a part of a token (RFC 7515)."""
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


@pytest.mark.parametrize("kind", ["service account", "token"])
def test_credentials_are_sent_and_told_nowhere(
    kind: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    account, public = service_account()
    private = json.loads(account)["private_key"].splitlines()[1]
    came = set[str]()

    def allows(token: str) -> bool:
        came.add(token)
        if kind == "token":
            return token == SECRET
        signed, _, signature = token.rpartition(".")
        try:
            public.verify(decoded(signature), signed.encode(), padding.PKCS1v15(), SHA256())
        except InvalidSignature:
            return False
        claims = json.loads(decoded(signed.partition(".")[2]))
        return bool(claims["iss"] == f"{SECRET}@example.org")

    if kind == "token":
        monkeypatch.setenv("GOOGLE_BEARER_TOKEN", SECRET)
    else:
        (tmp_path / "key.json").write_text(account)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    told = []
    with Google(folder, allows=allows) as server, FaultProxy(server.url) as proxy:
        monkeypatch.setenv("GOOGLE_BASE_URL", proxy.url)
        with warnings.catch_warnings(record=True) as warned:
            view = ooc.open("gs://bucket/a.npy", cache=tmp_path / "kept")
            check(view)
            check(ooc.open("gs://bucket/parts/x*.npy"))
        loader = view.batches(16, shuffle=True)
        told += [as_json(loader), fingerprint(loader), repr(view), str(view), repr(loader)]
        told += [repr(view.storage), repr(view.source), str(loader.explain()), str(warned)]
        told.append(pickle.dumps(loader).decode("latin-1"))
        for status in (400, 401, 403, 404, 429, 500, 503):
            proxy.plan = lambda number, record, status=status: Refuse(status)
            for url in ("gs://bucket/a.npy", "gs://bucket/*.npy"):
                with pytest.raises(SourceError) as caught:
                    ooc.open(url)
                told += traceback.format_exception(caught.value)
                told += [repr(caught.value), str(pickle.dumps(caught.value))]
        told += [record.path for record in proxy.log]
    for path in (tmp_path / "kept").rglob("*"):
        told += [str(path), path.read_bytes().decode("latin-1") if path.is_file() else ""]
    told += [caplog.text, *capfd.readouterr()]
    assert came
    assert "" not in came
    for secret in (SECRET, private, *came):
        assert not [text for text in told if secret in text]


def test_without_credentials_it_is_said_what_to_give(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    with Google(folder, allows=bool) as server:
        monkeypatch.setenv("GOOGLE_BASE_URL", server.url)
        with pytest.raises(SourceError, match="401"):
            ooc.open("gs://bucket/a.npy")
