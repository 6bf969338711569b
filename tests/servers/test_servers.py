"""The servers of the tests, beside http.client and obstore: a fault must be what it says."""

from __future__ import annotations

import asyncio
import http.client
import os
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import HTTPStore

from servers import faults
from servers.proxy import FaultProxy
from servers.ranges import RangeServer, version_of

SIZE = 1 << 20
DATA = np.random.default_rng(0).bytes(SIZE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    (folder / "a b").mkdir()
    (folder / "a b" / "x.bin").write_bytes(DATA)
    (folder / "empty").write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[RangeServer]:
    with RangeServer(folder) as server:
        yield server


@pytest.fixture
def server(shared: RangeServer) -> RangeServer:
    shared.reset()
    return shared


X = "/a%20b/x.bin"


def ask(
    url: str, path: str = X, method: str = "GET", **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Send one request on a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


@contextmanager
def open_get(url: str) -> Iterator[http.client.HTTPResponse]:
    """Begin to read an answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("GET", X)
    with connection.getresponse() as answer:
        yield answer
    connection.close()


class TestRanges:
    @given(first=st.integers(0, SIZE - 1), length=st.integers(1, 2 * SIZE))
    def test_a_range_is_the_files_bytes(self, shared: RangeServer, first: int, length: int) -> None:
        status, data, headers = ask(shared.url, Range=f"bytes={first}-{first + length - 1}")
        assert (status, data) == (206, DATA[first : first + length])
        last = min(SIZE, first + length) - 1
        assert headers["Content-Range"] == f"bytes {first}-{last}/{SIZE}"

    @pytest.mark.parametrize(
        ("range_", "expected", "bounds"),
        [
            ("bytes=7-", DATA[7:], (7, None)),
            ("bytes=-7", DATA[-7:], (-7, None)),
            (f"bytes=-{SIZE + 1}", DATA, (-SIZE - 1, None)),
        ],
    )
    def test_open_ranges(
        self,
        server: RangeServer,
        range_: str,
        expected: bytes,
        bounds: tuple[int, int | None],
    ) -> None:
        status, data, _ = ask(server.url, Range=range_)
        assert (status, data) == (206, expected)
        (record,) = server.log
        assert (record.path, record.start, record.stop) == (X, *bounds)
        assert (record.status, record.nbytes) == (206, len(expected))

    @pytest.mark.parametrize("range_", [f"bytes={SIZE}-", "bytes=-0", "bytes=5-4"])
    def test_ranges_without_bytes(self, server: RangeServer, range_: str) -> None:
        status, data, headers = ask(server.url, Range=range_)
        assert (status, data) == (416, b"")
        assert headers["Content-Range"] == f"bytes */{SIZE}"

    def test_head_and_whole_files(self, server: RangeServer, folder: Path) -> None:
        for method, expected in (("HEAD", b""), ("GET", DATA)):
            status, data, headers = ask(server.url, method=method, Range="bytes=x")
            assert (status, data) == (200, expected)
            assert headers["Content-Length"] == str(SIZE)
            assert headers["ETag"] == version_of(folder / "a b" / "x.bin")
        assert ask(server.url, "/empty")[:2] == (200, b"")
        assert (server.requests, server.nbytes) == (3, SIZE)

    def test_what_is_not_served(self, server: RangeServer, folder: Path) -> None:
        outside = folder.parent / f"{folder.name}.txt"
        outside.write_bytes(b"x")
        for path in ("/none", "/a%20b", "/", f"/../{outside.name}", f"/%2e%2e/{outside.name}"):
            assert ask(server.url, path)[0] == 404
        assert ask(server.url, method="DELETE")[0] == 405

    def test_if_match(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"old")
        with RangeServer(tmp_path) as server, RangeServer(tmp_path, etag="weak") as weak:
            tag = ask(server.url, "/x")[2]["ETag"]
            assert ask(server.url, "/x", If_Match=f'"other", {tag}')[:2] == (200, b"old")
            assert ask(server.url, "/x", If_Match="*")[0] == 200
            assert ask(weak.url, "/x")[2]["ETag"] == f"W/{tag}"
            for wanted in (tag, f"W/{tag}"):
                assert ask(weak.url, "/x", If_Match=wanted)[0] == 412
            os.utime(path, ns=(0, 0))  # of the same size, in the same inode
            assert ask(server.url, "/x", If_Match=tag, Range="bytes=0-0")[:2] == (412, b"")
        with RangeServer(tmp_path, etag=False) as without:
            assert ask(without.url, "/x")[2]["ETag"] is None

    def test_obstore_reads_the_same(self, server: RangeServer) -> None:
        store = HTTPStore.from_url(server.url, client_options={"allow_http": True})
        starts = range(0, SIZE, 1 << 14)

        async def read() -> list[bytes]:
            wanted = [store.get_range_async("a b/x.bin", start=at, length=99) for at in starts]
            return [bytes(data) for data in await asyncio.gather(*wanted)]

        assert asyncio.run(read()) == [DATA[at : at + 99] for at in starts]
        assert {(record.start, record.stop) for record in server.log} == {
            (at, at + 99) for at in starts
        }
        assert (server.requests, server.nbytes) == (len(starts), 99 * len(starts))


class TestCounts:
    def test_one_connection_serves_many_requests(self, server: RangeServer) -> None:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
        for first in range(50):
            connection.request("GET", X, headers={"Range": f"bytes={first}-{first}"})
            assert connection.getresponse().read() == DATA[first : first + 1]
        assert (server.requests, server.most_at_once, server.connections) == (50, 1, 1)
        connection.close()

    def test_a_closed_gate_holds_all_answers(self, server: RangeServer) -> None:
        server.hold()
        with ThreadPoolExecutor(20) as pool:
            answers = [pool.submit(ask, server.url, Range=f"bytes={n}-{n}") for n in range(20)]
            server.wait_for(20)
            assert (server.at_once, server.nbytes) == (20, 0)
            assert not any(answer.done() for answer in answers)
            server.release(1)
            assert len(wait(answers, return_when=FIRST_COMPLETED).done) == 1
            assert (server.at_once, server.nbytes) == (19, 1)
            server.release()
            assert [answer.result()[1] for answer in answers] == [
                DATA[n : n + 1] for n in range(20)
            ]
        assert (server.at_once, server.most_at_once) == (0, 20)

    def test_a_client_that_goes_away_is_not_in_flight(self, server: RangeServer) -> None:
        server.hold()
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
        connection.request("GET", X)
        server.wait_for(1)
        connection.close()
        server.wait_idle()
        server.release()
        assert [record.status for record in server.log] == [0]

    def test_a_server_ends_while_it_holds_answers(self, folder: Path) -> None:
        with ThreadPoolExecutor(1) as pool:
            with RangeServer(folder) as server:
                server.hold()
                answer = pool.submit(ask, server.url)
                server.wait_for(1)
            assert isinstance(answer.exception(), ConnectionResetError)
        assert server.connections == 0


class TestFaults:
    """Each fault as http.client sees it; the plan has it in the first request alone."""

    def broken(self, server: RangeServer, fault: faults.Fault) -> FaultProxy:
        return FaultProxy(server.url, lambda number, record: None if number else fault)

    def test_nothing_breaks_without_a_plan(self, server: RangeServer) -> None:
        with FaultProxy(server.url) as proxy:
            for method in ("GET", "HEAD"):
                for wanted in ({}, {"Range": "bytes=5-9"}, {"If_Match": '"other"'}):
                    through, direct = (
                        ask(at.url, method=method, **wanted) for at in (proxy, server)
                    )
                    assert through[:2] == direct[:2]
                    for name in ("ETag", "Last-Modified", "Content-Range", "Content-Length"):
                        assert through[2][name] == direct[2][name]
            assert [(record.status, record.nbytes) for record in proxy.log] == [
                (record.status, record.nbytes) for record in server.log[1::2]
            ]

    @pytest.mark.parametrize(
        ("fault", "error", "partial"),
        [
            (faults.Drop(), ConnectionResetError, 0),
            (faults.Drop(reset=False), http.client.RemoteDisconnected, 0),
            (faults.Half(), http.client.IncompleteRead, 50),
            (faults.Half(0), http.client.IncompleteRead, 0),
        ],
        ids=str,
    )
    def test_connections_that_end(
        self, server: RangeServer, fault: faults.Fault, error: type[Exception], partial: int
    ) -> None:
        with self.broken(server, fault) as proxy:
            with pytest.raises(error) as raised:
                ask(proxy.url, Range="bytes=0-99")
            assert ask(proxy.url, Range="bytes=0-99")[:2] == (206, DATA[:100])
            assert [record.fault for record in proxy.log] == [type(fault).__name__, None]
            if isinstance(raised.value, http.client.IncompleteRead):
                assert len(raised.value.partial) == proxy.log[0].nbytes == partial
            proxy.wait_idle()

    def test_a_reset_half_way(self, server: RangeServer) -> None:
        with self.broken(server, faults.Half(reset=True)) as proxy:
            with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
                ask(proxy.url)
            assert proxy.log[0].nbytes == SIZE // 2

    @pytest.mark.parametrize("status", [500, 503, 429, 403, 404])
    def test_refusals(self, server: RangeServer, status: int) -> None:
        with self.broken(server, faults.Refuse(status, retry_after=3)) as proxy:
            answer = ask(proxy.url)
            assert (answer[0], answer[1], answer[2]["Retry-After"]) == (status, b"", "3")
        assert server.requests == 0

    @pytest.mark.parametrize("by", [-1, 1])
    def test_a_wrong_length_is_right_for_http(self, server: RangeServer, by: int) -> None:
        with self.broken(server, faults.WrongLength(by)) as proxy:
            status, data, headers = ask(proxy.url, Range="bytes=10-19")
        assert (status, data) == (206, (DATA[10:20] + b"\0")[: 10 + by])
        assert headers["Content-Range"] == f"bytes 10-19/{SIZE}"
        assert headers["Content-Length"] == str(10 + by)

    def test_slow_bytes_until_they_are_let_go(self, server: RangeServer) -> None:
        with self.broken(server, faults.Slow(pause=1e-4)) as proxy, open_get(proxy.url) as answer:
            assert answer.read(3) == DATA[:3]
            assert proxy.at_once == 1
            proxy.let_go()
            assert answer.read() == DATA[3:]
            assert (proxy.at_once, proxy.nbytes) == (0, SIZE)

    @pytest.mark.parametrize("after", [None, 5])
    def test_a_stall_lasts_as_long_as_its_client(
        self, server: RangeServer, after: int | None
    ) -> None:
        with self.broken(server, faults.Stall(after)) as proxy:
            client = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=60)
            client.request("GET", X)
            proxy.wait_for(1)
            if after is None:
                client.sock.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    client.getresponse()
            else:
                answer = client.getresponse()
                assert answer.read(after) == DATA[:after]
                client.sock.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    answer.read(1)
                answer.close()
            assert proxy.at_once == 1
            client.close()
            proxy.wait_idle()
            assert proxy.log[0].nbytes == (after or 0)

    def test_a_server_that_ignores_ranges(self, server: RangeServer) -> None:
        with self.broken(server, faults.Whole()) as proxy:
            status, data, headers = ask(proxy.url, Range="bytes=10-19")
        assert (status, data, headers["Content-Range"]) == (200, DATA, None)

    def test_a_wrong_range(self, server: RangeServer) -> None:
        with self.broken(server, faults.WrongRange(by=2)) as proxy:
            status, data, headers = ask(proxy.url, Range="bytes=10-19")
        assert (status, data) == (206, DATA[10:20])
        assert headers["Content-Range"] == f"bytes 12-21/{SIZE}"

    def test_a_file_that_changes(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"old")
        changed = faults.Changed(lambda: path.write_bytes(b"newer"))
        with (
            RangeServer(tmp_path) as server,
            FaultProxy(
                server.url, lambda number, record: changed if number == 1 else None
            ) as proxy,
        ):
            tag = ask(proxy.url, "/x")[2]["ETag"]
            assert ask(proxy.url, "/x", If_Match=tag)[0] == 412
            status, data, headers = ask(proxy.url, "/x")
            assert (status, data, headers["ETag"] == tag) == (200, b"newer", False)

    def test_random_faults_let_a_client_through_that_tries_again(self, server: RangeServer) -> None:
        kinds: list[faults.Fault] = [
            faults.Drop(),
            faults.Drop(reset=False),
            faults.Half(),
            faults.Refuse(503),
        ]

        def reads(order: list[int]) -> tuple[list[tuple[int | None, str | None]], int]:
            plan = faults.RandomFaults(7, share=0.5, kinds=kinds, in_a_row=3, most=100)
            with FaultProxy(server.url, plan) as proxy:
                for first in order:
                    for _ in range(4):
                        try:
                            status, data, _ = ask(proxy.url, Range=f"bytes={first}-{first + 9}")
                        except (OSError, http.client.HTTPException):
                            continue
                        if status == 206:
                            break
                    else:
                        pytest.fail("four faults in a row")
                    assert data == DATA[first : first + 10]
                return [(record.start, record.fault) for record in proxy.log], plan.injected

        there, number = reads(list(range(50)))
        back, _ = reads(list(range(49, -1, -1)))
        assert number == sum(fault is not None for _, fault in there) > 25
        # A range has the same faults whenever its turn comes.
        assert sorted(there, key=str) == sorted(back, key=str)
