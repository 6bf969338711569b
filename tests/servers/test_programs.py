"""Servers that are programs: moto, nginx, and links that these run behind."""

from __future__ import annotations

import http.client
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import HTTPStore, S3Store

from servers import faults
from servers.link import Link, usable
from servers.nginx import Nginx
from servers.program import UnavailableError
from servers.proxy import FaultProxy
from servers.ranges import RangeServer
from servers.s3 import S3

DATA = np.random.default_rng(0).bytes(1 << 20)

needs_links = pytest.mark.skipif(bool(usable()), reason=usable())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has the bucket as a folder, as nginx wants it for reads of S3."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "data" / "a").mkdir(parents=True)
    (folder / "data" / "a" / "x.bin").write_bytes(DATA)
    (folder / "data" / "y").write_bytes(b"y")
    return folder


@pytest.fixture(scope="module")
def bucket(folder: Path) -> Iterator[S3]:
    with S3() as s3:
        assert s3.upload(folder / "data") == 2
        yield s3


@pytest.fixture(scope="module")
def nginx(folder: Path) -> Iterator[Nginx]:
    try:
        server = Nginx(folder).__enter__()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


def check_reads(store: HTTPStore | S3Store, key: str) -> None:
    """Check the reads that arrays are made of."""
    assert bytes(obstore.get(store, key).bytes()) == DATA
    assert bytes(obstore.get_range(store, key, start=5, end=50)) == DATA[5:50]
    tail = obstore.get(store, key, options={"range": {"suffix": 9}})
    assert (tail.range, bytes(tail.bytes())) == ((len(DATA) - 9, len(DATA)), DATA[-9:])
    found = obstore.head(store, key)
    assert (found["size"], found["e_tag"]) == (len(DATA), tail.meta["e_tag"])
    assert found["e_tag"] is not None
    same = obstore.get(store, key, options={"if_match": found["e_tag"], "range": (0, 5)})
    assert bytes(same.bytes()) == DATA[:5]
    with pytest.raises(PreconditionError):
        obstore.get(store, key, options={"if_match": '"other"', "range": (0, 5)})
    with pytest.raises(FileNotFoundError):
        obstore.head(store, f"{key}.none")


class TestS3:
    def test_reads(self, bucket: S3, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, text in bucket.environment.items():
            monkeypatch.setenv(name, text)
        check_reads(S3Store.from_url("s3://data/a"), "x.bin")

    def test_lists_and_writes(self, bucket: S3) -> None:
        store = bucket.store("written")
        obstore.put(store, "b/z", b"z", mode="create")
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, "b/z", b"z", mode="create")
        assert obstore.list_with_delimiter(store)["common_prefixes"] == ["b"]
        obstore.delete(store, "b/z")
        keys = {one["path"] for some in obstore.list(bucket.store()) for one in some}
        assert keys == {"a/x.bin", "y"}

    def test_faults_before_it(self, bucket: S3, monkeypatch: pytest.MonkeyPatch) -> None:
        with FaultProxy(bucket.url, lambda number, _: None if number else faults.Drop()) as proxy:
            for name, text in (bucket.environment | {"AWS_ENDPOINT_URL": proxy.url}).items():
                monkeypatch.setenv(name, text)
            check_reads(S3Store.from_url("s3://data"), "a/x.bin")
            assert [record.status for record in proxy.log[:2]] == [0, 200]


class TestNginx:
    def test_reads(self, nginx: Nginx, bucket: S3, monkeypatch: pytest.MonkeyPatch) -> None:
        store = HTTPStore.from_url(nginx.url, client_options={"allow_http": True})
        check_reads(store, "data/a/x.bin")
        for name, text in bucket.environment.items():
            monkeypatch.setenv(name, text)
        monkeypatch.setenv("AWS_ENDPOINT_URL", nginx.url)
        check_reads(S3Store.from_url("s3://data"), "a/x.bin")

    def test_answers_as_our_own_server(self, nginx: Nginx, folder: Path) -> None:
        """The server that counts is right where nginx is."""
        with RangeServer(folder) as ours:
            assert self.ask(ours.url, "HEAD") == self.ask(nginx.url, "HEAD")
            for wanted in ("", "5-9", "5-", "-5", "2000000-", "0-2000000", "-2000000"):
                assert self.ask(ours.url, "GET", wanted) == self.ask(nginx.url, "GET", wanted)

    def ask(self, url: str, method: str, wanted: str = "") -> tuple[object, ...]:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        headers = {"Range": f"bytes={wanted}"} if wanted else {}
        connection.request(method, "/data/a/x.bin", headers=headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if answer.status == 416:
            return answer.status, answer.headers["Content-Range"]
        names = ("Content-Range", "Content-Length", "Last-Modified")
        return answer.status, data, *(answer.headers[name] for name in names)

    def test_what_is_not_installed_is_said(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shutil.which", lambda name, path=None: None)
        with pytest.raises(UnavailableError, match="apt-get install nginx-light"):
            Nginx(folder).start()


@needs_links
class TestLink:
    # Bounds that no machine is too slow for: nothing comes earlier than the link lets it.
    def test_delay(self, nginx: Nginx, folder: Path) -> None:
        with Link(delay_ms=30) as link, Nginx(folder, link) as far:
            connection = http.client.HTTPConnection(urlsplit(far.url).netloc, timeout=60)
            begin = time.monotonic()
            connection.connect()
            assert time.monotonic() - begin >= 0.03
            connection.close()

    def test_rate(self, nginx: Nginx, folder: Path) -> None:
        with Link(delay_ms=0, rate_mbit=100) as link, Nginx(folder, link) as far:
            begin = time.monotonic()
            with urlopen(f"{far.url}/data/a/x.bin") as answer:
                assert answer.read() == DATA
            assert time.monotonic() - begin >= len(DATA) * 8 / 100e6

    def test_programs_inside(self, folder: Path) -> None:
        with Link(delay_ms=1) as link, S3(link=link) as s3:
            assert s3.address == link.address
            s3.upload(folder / "data")
            check_reads(s3.store("a"), "x.bin")

    def test_links_do_not_meet_and_leave_nothing(self) -> None:
        with Link(0) as one, Link(0) as other:
            assert one.address != other.address
            assert len(devices(one) | devices(other)) == 2
        assert not devices(one) | devices(other)
        assert not any(Path("/run/netns", link.command[-1]).exists() for link in (one, other))
        with pytest.raises(ZeroDivisionError), Link(0) as one:
            raise ZeroDivisionError
        assert not Path("/run/netns", one.command[-1]).exists()

    def test_a_killed_process_leaves_no_programs(
        self, nginx: Nginx, folder: Path, tmp_path: Path
    ) -> None:
        script = (
            "import sys; from servers.link import Link; from servers.nginx import Nginx\n"
            "with Link(0) as link, Nginx(sys.argv[1], link) as far:\n"
            "    print(link.wire, far.number, flush=True); sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            env=os.environ
            | {"PYTHONPATH": str(Path(__file__).parents[1]), "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            programs = [os.pidfd_open(int(pid)) for pid in process.stdout.readline().split()]
            process.kill()
        for program in programs:
            assert select.select([program], [], [], 60)[0]  # readable when it has ended
            os.close(program)
        # The namespace is still there; the next link takes its name, if no other run's did.
        with Link(0) as link, Nginx(folder, link) as far:
            assert urlopen(f"{far.url}/data/y").read() == b"y"


def devices(link: Link) -> set[str]:
    """Return the devices of a link on our side, by their addresses."""
    near = link.address.removesuffix("2") + "1/30"
    shown = subprocess.run(["ip", "-o", "address"], capture_output=True, text=True, check=True)
    return {line.split()[1] for line in shown.stdout.splitlines() if f" {near} " in line}
