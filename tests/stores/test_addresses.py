"""Parse URLs of each store, list names and find credentials; S3 is served by moto."""

from __future__ import annotations

import io
import json
import pickle
import ssl
import threading
import traceback
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import boto3
import fsspec
import h5py
import numpy as np
import obstore.store
import pytest
import typer.testing
import zarr
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from numpy.testing import assert_array_equal
from servers.faults import Exchange, Refuse
from servers.http import Answer, refusal
from servers.proxy import FaultProxy
from servers.ranges import RangeServer
from servers.s3 import S3
from stored_layouts import numbers

import oocdata as ooc
from oocdata.cli import app
from oocdata.describe import as_json, fingerprint
from oocdata.engines.prefetch import GAP
from oocdata.errors import ArgumentError, MissingFileError, OocdataError, SourceError
from oocdata.stores import address as addresses
from oocdata.stores import link as links
from oocdata.stores.address import Address, client, list_names
from oocdata.stores.link import REQUESTS, Link

ROWS = numbers((60, 4, 6))
KEYS = {
    "aws_access_key_id": "test",
    "aws_secret_access_key": "test",
    "region_name": "us-east-1",
}
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
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    folder = tmp_path_factory.mktemp("bucket")
    np.save(folder / "a.npy", ROWS)
    (folder / "parts").mkdir()
    for number, part in enumerate(np.array_split(ROWS, 12)):
        np.save(folder / "parts" / f"x {number}.npy", part)
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("u", data=ROWS, chunks=(8, 4, 6), compression="gzip")
    group = zarr.create_group(folder / "g.zarr")
    group.create_array("inner/u", data=ROWS, chunks=(8, 4, 6))
    group.create_array("inner/v", data=ROWS + 1, chunks=(8, 4, 6))
    with S3() as server:
        server.upload(folder)
        yield server


@pytest.fixture
def s3(bucket: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{bucket.bucket}"


def check(view: ooc.View, rows: np.ndarray = ROWS) -> None:
    loader = view.batches(16, shuffle=True)
    for step, batch in enumerate(loader):
        assert_array_equal(batch, rows[loader.positions(step)])


def test_objects_of_a_bucket(s3: str) -> None:
    check(ooc.open(f"{s3}/a.npy"))
    check(ooc.open(f"{s3}/a.h5", "u"))
    check(ooc.open(f"{s3}/g.zarr/inner/u"))


def test_a_group_without_consolidated_metadata_is_listed(s3: str) -> None:
    check(ooc.open(f"{s3}/g.zarr", "inner/v"), ROWS + 1)
    check(ooc.open(f"{s3}/g.zarr", "inner/*"), np.concatenate([ROWS, ROWS + 1]))
    with pytest.raises(OocdataError, match="inner/u"):
        ooc.open(f"{s3}/g.zarr")


def test_a_glob_of_a_bucket(s3: str) -> None:
    """Names are in natural order, also if they are quoted."""
    check(ooc.open(f"{s3}/parts/x*.npy"))
    check(ooc.open(f"{s3}/*/x [0-9].npy"), ROWS[:50])
    with pytest.raises(MissingFileError, match="glob"):
        ooc.open(f"{s3}/parts/y*.npy")


def test_a_glob_whose_last_steps_not_every_folder_has(s3: str) -> None:
    check(ooc.open(f"{s3}/*/x 1.npy"), ROWS[5:10])
    check(ooc.open(f"{s3}/*/inner/u"))
    with pytest.raises(MissingFileError, match="glob"):
        ooc.open(f"{s3}/*/gone.npy")


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("run[1]/x.npy", [7]),
        ("run[1]/*.npy", [7, 8]),
        ("run[12]/x.npy", [1, 2]),
        ("run*/x.npy", [1, 2, 7]),
        ("run1/st*r.npy", [3]),
        ("both*", [5]),  # an object, and a folder of others
    ],
)
def test_a_name_with_the_marks_of_a_pattern_is_a_name(pattern: str, wanted: list[int]) -> None:
    store = obstore.store.MemoryStore()
    names = ["run[1]/x.npy", "run[1]/y.npy", "run1/x.npy", "run2/x.npy", "run1/st*r.npy"]
    for name, number in [
        *zip(names, (7, 8, 1, 2, 3), strict=True),
        *(("run1/star.npy", 4), ("both.npy", 5), ("both.npy/x.npy", 6)),
    ]:
        file = io.BytesIO()
        np.save(file, np.array([number]))
        store.put(name, file.getvalue())
    assert np.asarray(ooc.open(pattern, store=store)).tolist() == wanted


def test_names_below_an_address(s3: str) -> None:
    found = dict(list_names(Address.of(f"{s3}/g.zarr")))
    assert found == {"inner": True, "zarr.json": False}
    assert dict(list_names(Address.of(s3)))["parts"] is True


def test_a_bucket_or_a_key_that_is_not_there(s3: str) -> None:
    for url in (f"{s3}/gone.npy", "s3://no-such-bucket/a.npy"):
        with pytest.raises(MissingFileError, match="must exist") as caught:
            ooc.open(url)
        assert caught.value.path == url
    with pytest.raises(SourceError, match="no-such-bucket"):
        ooc.open("s3://no-such-bucket/*.npy")


def test_without_credentials(s3: str, bucket: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    boto3.client("s3", endpoint_url=bucket.url, **KEYS).put_object_acl(
        Bucket=bucket.bucket, Key="a.npy", ACL="public-read"
    )
    check(ooc.open(f"{s3}/a.npy"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[Any]:
    """Count the requests for each range, with retries."""
    counts, ask = Counter[Any](), Link._ask

    def count(self: Link, *request: Any) -> Any:
        counts[request[:3]] += 1
        return ask(self, *request)

    monkeypatch.setattr(Link, "_ask", count)
    return counts


def test_a_store_on_a_disk_is_not_asked_again(tmp_path: Path, asked: Counter[Any]) -> None:
    """An object below a file is missing, and no error of a disk is retried."""
    np.save(tmp_path / "a.npy", ROWS)
    store = obstore.store.LocalStore(tmp_path)
    check(ooc.open("a.npy", store=store))
    with pytest.raises(MissingFileError):
        ooc.open("a.npy/b.npy", store=store)
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_paths_of_a_file_system(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are absolute, or relative to the working directory."""
    monkeypatch.chdir(tmp_path)
    files = fsspec.filesystem(kind)
    root = str(tmp_path) if kind == "file" else "/here"
    for name in ("a.npy", "b/a.npy"):
        files.makedirs(f"{root}/b", exist_ok=True)
        with files.open(f"{root}/{name}", "wb") as file:
            np.save(file, ROWS)
        check(ooc.open(f"{root}/{name}", store=files))
    zarr.save_array(tmp_path / "a.zarr", ROWS)
    files.put(str(tmp_path / "a.zarr"), f"{root}/a.zarr", recursive=True)
    check(ooc.open(f"{root}/a.zarr", store=files))
    assert len(ooc.open(f"{root}/*/a.npy", store=files)) == len(ROWS)
    with pytest.raises(MissingFileError, match="gone"):
        ooc.open(f"{root}/gone/*.npy", store=files)
    if kind == "file":
        check(ooc.open("b/a.npy", store=files))


def test_a_file_system_is_asked_as_many_times_at_once_as_a_store(tmp_path: Path) -> None:
    """Each call waits until all are in flight."""
    rows = np.arange(REQUESTS * 2 * GAP).reshape(2 * REQUESTS, GAP)
    np.save(tmp_path / "a.npy", rows)

    class Slow(fsspec.get_filesystem_class("file")):
        all_of_them: threading.Barrier | None = None

        def cat_file(self, *given: Any, **named: Any) -> Any:
            if self.all_of_them is not None:
                self.all_of_them.wait(30)
            return super().cat_file(*given, **named)

    files = Slow(skip_instance_cache=True)
    view = ooc.open(str(tmp_path / "a.npy"), store=files)
    files.all_of_them = threading.Barrier(REQUESTS)
    assert_array_equal(view.take(np.arange(REQUESTS) * 2), rows[::2])


def test_chunks_that_are_written_into_references() -> None:
    """kerchunk does so with small chunks; the file system returns the length of the text."""
    array = {
        "zarr_format": 2, "shape": [4, 3], "chunks": [2, 3], "dtype": "<i2", "compressor": None,
        "filters": None, "fill_value": 0, "order": "C",
    }  # fmt: skip
    rows = np.arange(12, dtype="<i2").reshape(4, 3)
    each = {
        f"u/{at}.0": "base64:" + b64encode(rows[2 * at : 2 * at + 2].tobytes()).decode()
        for at in range(2)
    }
    refs = {"version": 1, "refs": {"u/.zarray": json.dumps(array), **each}}
    assert_array_equal(ooc.open("u", store=fsspec.filesystem("reference", fo=refs)), rows)


# ---- the same, over HTTP ----


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    (tmp_path / "box").mkdir()
    np.save(tmp_path / "box" / "a.npy", ROWS)
    with RangeServer(tmp_path) as made:
        yield made


@pytest.mark.parametrize("version", [2, 3])
def test_a_store_that_forbids_what_is_not_there(server: RangeServer, version: Any) -> None:
    """S3 answers so to a reader without permission to list."""
    group = zarr.create_group(server.folder / "g.zarr", zarr_format=version)
    group.create_array("u", data=ROWS, chunks=(8, 4, 6))
    with FaultProxy(server.url) as proxy:
        proxy.plan = lambda number, record: (
            None if (server.folder / record.path.lstrip("/")).is_file() else Refuse(403)
        )
        check(ooc.open(f"{proxy.url}/g.zarr", "u"))
        check(ooc.open(f"{proxy.url}/g.zarr/u"))
        check(ooc.open(f"{proxy.url}/box/a.npy"))
        with pytest.raises(SourceError, match="403"):
            ooc.open(f"{proxy.url}/h.zarr", "u")


def test_azure(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr.create_array(
        server.folder / "box" / "s.zarr", data=ROWS, chunks=(4, 4, 6), shards=(20, 4, 6)
    )
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acc")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", server.url)
    monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    check(ooc.open("az://box/a.npy"))
    check(ooc.open("az://box/s.zarr"))


@pytest.mark.parametrize(
    "url",
    [
        "https://bucket.s3.us-west-2.amazonaws.com/a/b.npy",
        "https://s3.us-west-2.amazonaws.com/bucket/a/b.npy",
        "https://account.blob.core.windows.net/box/a.npy",
        "https://storage.googleapis.com/bucket/a.npy",
        "https://0123.r2.cloudflarestorage.com/bucket/a.npy",
        "http://localhost:9000/bucket/a.npy",
    ],
)
def test_https_is_plain_http_whatever_the_host(url: str) -> None:
    """The host is not taken for a bucket, and no credentials are requested."""
    address = Address.of(url)
    assert type(address.store).__name__ == "HTTPStore"
    assert address.url == url


def test_a_store_that_lacks_a_setting_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SourceError, match="Account must be specified") as caught:
        ooc.open("az://box/a.npy")
    assert caught.value.path == "az://box"


# ---- what must not be told ----

SIGNED = [
    "http://user:{}@127.0.0.1:9/a.npy",
    "https://{}@host/a.npy",
    "https://host/a.npy?X-Amz-Signature={}",
    "https://host/a.npy?sv=2022&sig={}",
    "s3://bucket/a.npy?key={}",
    "https://host/a.npy#{}",
    "s3://{}:key@bucket/a.npy",
    "ftp://user:{}@host/a.npy",
    "hf://user:{}@host/a.npy",
    "postgresql://user:{}@host/a.npy?sig={}",
    "HTTPS://user:{}@host/a.npy",
    "file://user:{}@host/a.npy",
    "abfss://box:{}@host/a.npy",
    "https:/user:{}@host/a.npy",
    "https:user:{}@host/a.npy",
    "https:\\\\user:{}@host\\a.npy",
    "https:///user:{}@host/a.npy",
    "/https://user:{}@host/a.npy",
    "user:{}@https://host/a.npy",
    "http s://user:{}@host/a.npy",
    "https://user:pass/{}@host/a.npy",
    "https://[user:{}@host/a.npy",
    "https://user:{}@host\u2100/a.npy",
    "https://host:{}/a.npy",
    "https:/host/a.npy?sig={}",
]
OPENERS: dict[str, Callable[[str], Any]] = {
    "open": ooc.open,
    "glob": lambda url: ooc.open(url.replace("a.npy", "*.npy")),
    "list": lambda url: ooc.open([url]),
    "store": lambda url: ooc.open(url, store=obstore.store.MemoryStore()),
    "key": lambda url: ooc.open(url, "u"),
    "raw": lambda url: ooc.open(url, dtype="f4", shape=(-1, 4)),
    "preview": ooc.preview,
    "check": ooc.check,
    "stats": ooc.stats,
    "convert": lambda url: ooc.convert(ROWS, url.replace("a.npy", "a.zarr")),
    "create": lambda url: ooc.create(url, dtype="f4", element_shape=()),
    "verify": lambda url: ooc.open(ROWS, verify=url),
    "cache": lambda url: ooc.open("https://host/a.npy", cache=url),
    "cached rows": lambda url: ooc.open(ROWS).cache(url),
    "Resume": lambda url: ooc.Resume(url, ooc.open(ROWS).batches(2)),
    "service": lambda url: ooc.open(ROWS).batches(2).to_tf(service=url),
    "split": lambda url: ooc.load_split(url, ooc.open(ROWS)),
}


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("url", SIGNED)
def test_a_url_with_a_credential_is_refused_and_not_echoed(url: str, opener: str) -> None:
    url = url.replace("{}", SECRET)
    with pytest.raises(OocdataError) as caught:
        OPENERS[opener](url)
    assert SECRET not in "".join(traceback.format_exception(caught.value, chain=True)).replace(
        f"{opener}({url!r})", ""
    )
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize("command", ["info", "check", "preview", "stats"])
def test_the_command_line_does_not_echo_it(
    command: str,
) -> None:
    done = typer.testing.CliRunner().invoke(app, [command, f"https://host/a.npy?sig={SECRET}"])
    assert done.exit_code
    assert SECRET not in done.output
    assert "signature" in done.output


def test_keys_of_the_environment_are_told_nowhere(
    s3: str, bucket: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"ID{SECRET}")
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"TOKEN{SECRET}")
    view = ooc.open(f"{s3}/a.npy")
    loader = view.batches(16, shuffle=True)
    told = [as_json(loader), fingerprint(loader), repr(view), repr(view.storage), str(view)]
    told += [repr(loader), loader.explain().__str__(), repr(view.source)]
    told.append(pickle.dumps(loader).decode("latin-1"))
    with FaultProxy(bucket.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        client.cache_clear()
        for status in (400, 401, 403, 404, 500, 503):
            proxy.plan = lambda number, record, status=status: Refuse(status)
            for read in (lambda: ooc.open(f"{s3}/a.npy"), lambda: ooc.open(f"{s3}/*.npy")):
                try:
                    read()
                except SourceError as error:
                    told += traceback.format_exception(error)
                    told += [repr(error), str(pickle.dumps(error))]
    assert len(told) > 20
    for text in told:
        assert SECRET not in text


def test_a_signature_of_the_environment_is_told_nowhere(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure's is part of the URL that the client requests."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acc")
    monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", f"sv=2022-11-02&sig={SECRET}")
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    told: list[str] = []
    with FaultProxy(server.url) as proxy:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", proxy.url)
        for status in (400, 401, 403, 404, 500, 503):
            proxy.plan = lambda number, record, status=status: Refuse(status)
            with pytest.raises(SourceError) as caught:
                ooc.open("az://box/a.npy")
            told += traceback.format_exception(caught.value)
        assert any(SECRET in record.path for record in proxy.log)
    client.cache_clear()
    with pytest.raises(SourceError, match="reachable") as caught:
        ooc.open("az://box/a.npy")
    told += traceback.format_exception(caught.value)
    assert told
    for text in told:
        assert SECRET not in text


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        # The key itself where the path of its file is expected.
        ("GOOGLE_SERVICE_ACCOUNT", '{"private_key": "{}"}', "from …: No such"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", '"{\\"private_key\\": \\"{}\\"}"', "invalid type: string …"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "{}!", "Invalid Access Key"),
    ],
)
def test_a_setting_that_the_client_refuses_is_not_echoed(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acc")
    monkeypatch.setenv(name, value.replace("{}", SECRET))
    with pytest.raises(SourceError, match=message) as caught:
        ooc.open(f"{'gs' if name.startswith('GOOGLE') else 'az'}://box/a.npy")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_key_with_a_line_break(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client panics, because no header may hold one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"{SECRET}\n")
    with pytest.raises(SourceError, match="line break") as caught:
        ooc.open(f"{s3}/a.npy")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_credentials_of_the_environment_may_be_corrected(
    s3: str, bucket: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of a store takes them when it is made: after a refusal another one is made."""

    async def of_the_key(exchange: Exchange) -> Answer:
        if "KEYTHATISVALID" in exchange.request.headers["authorization"]:
            return (await exchange.forward(exchange.request)).answer()
        return refusal(403)

    with FaultProxy(bucket.url, lambda *_: of_the_key) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        for read in (lambda: ooc.open(f"{s3}/a.npy"), lambda: ooc.open(f"{s3}/*.npy")):
            client.cache_clear()
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEYTHATEXPIRED")
            with pytest.raises(SourceError, match="403"):
                read()
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEYTHATISVALID")
            assert len(read()) == len(ROWS)


def test_an_address_of_ipv6(tmp_path: Path) -> None:
    """Its host is in brackets, which are no pattern."""
    np.save(tmp_path / "a.npy", ROWS)
    with RangeServer(tmp_path, address="::1") as server:
        assert_array_equal(ooc.open(f"{server.url}/a.npy").take([3, 50]), ROWS[[3, 50]])
        with pytest.raises(SourceError, match="can't list"):
            ooc.open(f"{server.url}/[a].npy")


def certificate(folder: Path) -> Path:
    """Write a certificate of 127.0.0.1, signed by its own key, and that key; return the path."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    now = datetime.now(UTC)
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    signed = made.add_extension(hosts, critical=False).sign(key, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(private)
    (folder / "certificate.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    return folder / "certificate.pem"


def test_https(tmp_path: Path, asked: Counter[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that is not trusted is told at once, and may be by the environment."""
    np.save(tmp_path / "a.npy", ROWS)
    path = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path, tmp_path / "key.pem")
    with RangeServer(tmp_path, tls=tls) as server:
        asked.clear()
        with pytest.raises(SourceError, match=r"certificate.*UnknownIssuer.*SSL_CERT_FILE"):
            ooc.open(f"{server.url}/a.npy")
        assert set(asked.values()) == {1}
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        client.cache_clear()
        check(ooc.open(f"{server.url}/a.npy"))


@pytest.mark.parametrize("url", ["s3://", "https:///a.npy", "https://host:port/a.npy"])
def test_a_url_without_a_host(url: str) -> None:
    with pytest.raises(ArgumentError, match="must be a URL with a bucket or a host"):
        ooc.open(url)


def test_a_url_that_pathlib_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="URLs as text, with two slashes"):
        ooc.open(Path("https://host/a.npy"))
    monkeypatch.chdir(tmp_path)
    for name in ("run:/a.npy", "12:30@lab.npy"):  # files that exist
        Path(name).parent.mkdir(exist_ok=True)
        np.save(name, ROWS)
        check(ooc.open(name))


def test_every_scheme_is_known() -> None:
    assert set(addresses._SCHEMES) == {"s3", "gs", "az", "abfs", "abfss", "http", "https"}
    with pytest.raises(ArgumentError, match="without"):
        Address.of("https://a:b@host/x")
