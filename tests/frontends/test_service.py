"""A cluster of workers: real processes, real signals, every batch once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fork_server
import h5py
import numpy as np
import pytest
import service_functions
import tensorflow as tf
from ports import lasting_ports
from servers.ranges import RangeServer

import oocdata as ooc
from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError, DescriptionError, ServiceError
from oocdata.frontends import delivery

# A process that loads TensorFlow starts for the first test, and forks.
pytestmark = pytest.mark.timeout(400)

TESTS = Path(__file__).parents[1]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS / "lean"))),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "COLUMNS": "100",
}
RUN = "from oocdata.cli import main; main()"


def start(code: str, *arguments: str) -> fork_server.Forked:
    return fork_server.start(code, *arguments, env=ENVIRONMENT, hear="stdout", finalize=True)


def typed(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
    )


@dataclass
class Server:
    process: fork_server.Forked | subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Cluster:
    """Servers, each started by the command line; they end with the cluster."""

    def __init__(self, *, fork: bool = True) -> None:
        self.servers: list[Server] = []
        self.fork = fork  # else as a new process, which imports TensorFlow

    def start(self, *arguments: str) -> Server:
        process = start(RUN, *arguments) if self.fork else typed(*arguments)
        assert process.stdout is not None
        # A server that ends writes an empty line, which is an error here.
        said = process.stdout.readline().split()
        server = Server(process, said[4].rstrip(","))
        self.servers.append(server)
        return server

    def dispatcher(self, *arguments: str) -> Server:
        self.main = self.start("dispatcher", "--port", "0", *arguments)
        return self.main

    def worker(self, *arguments: str) -> Server:
        return self.start(
            "worker", "--dispatcher", self.main.address, "--allow", "service_functions", *arguments
        )

    def end(self) -> None:
        for server in self.servers:
            server.kill()
            assert server.process.stdout is not None
            server.process.stdout.close()


@contextmanager
def cluster_of(workers: int, *arguments: str) -> Iterator[Cluster]:
    made = Cluster()
    try:
        made.dispatcher(*arguments)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda _: made.worker(), range(workers)))
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(2) as made:
        yield made


@pytest.fixture(scope="module")
def service(cluster: Cluster) -> str:
    return cluster.main.address


@pytest.fixture(scope="module")
def mortal() -> Iterator[Cluster]:
    with cluster_of(2) as made:
        yield made


@pytest.fixture
def view(tmp_path: Path) -> ooc.View:
    np.save(tmp_path / "a.npy", np.arange(1003))
    return ooc.open(tmp_path / "a.npy")


def contents(batch: Any) -> tuple[bytes, ...]:
    return tuple(np.asarray(leaf).tobytes() for leaf in leaves(batch))


def expected(loader: ooc.Loader, epoch: int, start: int = 0) -> list[tuple[bytes, ...]]:
    return sorted(contents(loader.batch(step, epoch)) for step in range(start, len(loader)))


def drawn(dataset: Any) -> list[tuple[bytes, ...]]:
    return sorted(contents(batch) for batch in dataset)


class TestEpochs:
    def test_every_batch_once_an_epoch(self, service: str, view: ooc.View) -> None:
        loader = view.next_frame().batches(20, shuffle=True, seed=7)
        dataset = loader.to_tf(service=service)
        assert dataset.cardinality() == 51
        assert dataset.element_spec == loader.to_tf().element_spec
        for epoch in range(2):
            assert drawn(dataset) == expected(loader, epoch)

    def test_both_workers_read(self, service: str, view: ooc.View) -> None:
        pair = (ooc.ArraySpec((), np.dtype("i8")),) * 2
        mapped = view.map(service_functions.by_process, spec=pair)
        processes = {int(p[0]) for _, p in mapped.batches(40).to_tf(service=service)}
        assert len(processes) == 2
        assert os.getpid() not in processes

    def test_runs_of_several_steps_and_dicts(self, service: str, tmp_path: Path) -> None:
        rows = np.arange(1003 * 16, dtype="f4").reshape(1003, 16)
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("u", data=rows, chunks=(50, 16), compression="gzip")
        both = ooc.open(tmp_path / "a.h5")
        loader = ooc.zip({"x": both[:, :8], "y": both[:, 8:]}).batches(16, shuffle=True)
        assert loader.steps_together > 1
        dataset = loader.to_tf(service=service, parallel=3, prefetch=0)
        assert isinstance(dataset.element_spec, dict)
        assert drawn(dataset) == expected(loader, 0)

    def test_a_file_in_a_store(self, service: str, tmp_path: Path) -> None:
        """Each worker fetches the chunks of its steps by the URL of the file."""
        rows = np.random.default_rng(0).integers(0, 1 << 30, (4096, 16, 16))
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("u", data=rows, chunks=(8, 16, 16), compression="gzip")
        with RangeServer(tmp_path) as server:
            order = ooc.BlockShuffle(8, 4, lanes=1)
            loader = ooc.open(f"{server.url}/a.h5", "u").batches(16, shuffle=order, seed=5)
            dataset = loader.to_tf(service=service)
            server.reset()
            found = drawn(dataset)
            fetched = server.nbytes
            assert found == expected(loader, 0)
        # Each worker also fetches the metadata, and chunks that a border between two parts cuts.
        assert fetched <= 1.5 * (tmp_path / "a.h5").stat().st_size

    def test_draws_of_functions_depend_only_on_the_step(self, service: str, view: ooc.View) -> None:
        loader = view.map(service_functions.noisy, rng=True).batches(50, shuffle=True, seed=3)
        dataset = loader.to_tf(service=service)
        assert [drawn(dataset), drawn(dataset)] == [expected(loader, 0), expected(loader, 1)]

    def test_from_the_middle_and_several_epochs(self, service: str, view: ooc.View) -> None:
        loader = view.batches(100, drop_remainder=True, shuffle=True)
        dataset = loader.to_tf(service=service, start=(3, 4), epochs=2)
        assert dataset.cardinality() == 20  # of every pass except the first
        batches = [contents(batch) for batch in dataset]
        # No batch of an epoch comes before the previous epoch is complete.
        assert sorted(batches[:6]) == expected(loader, 3, 4)
        assert sorted(batches[6:]) == expected(loader, 4)
        second = [contents(batch) for batch in dataset]
        assert sorted(second[:10]) == expected(loader, 5)
        assert sorted(second[10:]) == expected(loader, 6)

    def test_a_shard_reads_its_part(self, service: str, view: ooc.View) -> None:
        shard = view.batches(40, shuffle=True).shard(2, 1)
        assert drawn(shard.to_tf(service=service)) == expected(shard, 0)

    def test_fit(self, service: str, view: ooc.View) -> None:
        import keras

        frames = ooc.zip(view.astype("f4")[:1000], view.astype("f4")[:1000])
        model = keras.Sequential(
            [keras.Input(()), keras.layers.Reshape((1,)), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse")
        dataset = frames.batches(100, shuffle=True).to_tf(service=service)
        history = model.fit(dataset, epochs=2, verbose=0, shuffle=False)
        assert len(history.history["loss"]) == 2

    def test_worker_processes_of_a_loader_are_not_used(self, service: str, view: ooc.View) -> None:
        loader = view.map(service_functions.doubled).batches(100, workers=2)
        assert drawn(loader.to_tf(service=service)) == expected(loader, 0)

    def test_each_dataset_opens_its_files(
        self, service: str, view: ooc.View, tmp_path: Path
    ) -> None:
        list(view.batches(100).to_tf(service=service))
        array = np.arange(1003)
        array[600] = 7  # neither the size nor the ends of the file change
        np.save(tmp_path / "a.npy", array)
        again = ooc.open(tmp_path / "a.npy").batches(100)
        assert drawn(again.to_tf(service=service)) == expected(again, 0)


TRAINER = """
import sys
from pathlib import Path
import numpy as np, oocdata as ooc, service_functions
view = ooc.open(sys.argv[2])
loader = view.map(service_functions.slow, spec=view[0]).batches(10, shuffle=True)
dataset = loader.to_tf(service=sys.argv[1], job_name="both")
for folder in sys.argv[3:]:
    print(*service_functions.one_of_two(dataset, Path(folder), "theirs"), flush=True)
iterator = iter(loader.to_tf(service=sys.argv[1]))
next(iterator)  # and exit with it alive
"""


@pytest.mark.thorough
class TestSharing:
    def test_two_trainers_share_each_epoch(
        self, service: str, view: ooc.View, tmp_path: Path
    ) -> None:
        folders = [tmp_path / "0", tmp_path / "1"]
        for folder in folders:
            folder.mkdir()
        other = start(TRAINER, service, str(tmp_path / "a.npy"), *map(str, folders))
        loader = view.map(service_functions.slow, spec=view[0]).batches(10, shuffle=True)
        assert other.stdout is not None
        with closing(other):
            dataset = loader.to_tf(service=service, job_name="both")
            assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
            mine = [service_functions.one_of_two(dataset, folder, "mine") for folder in folders]
            theirs = [list(map(int, other.stdout.readline().split())) for _ in range(2)]
            assert other.wait(60) == 0
        for epoch in range(2):
            whole = sorted(int(loader.batch(step, epoch)[0]) for step in range(len(loader)))
            assert sorted(mine[epoch] + theirs[epoch]) == whole
        assert all(mine)
        assert all(theirs)

    def test_other_loaders_with_one_name_share_nothing(self, service: str, view: ooc.View) -> None:
        """Training and validation data of one run, in turn."""
        parts = [part.batches(10) for part in view.split(0.5, 0.5)]
        found: list[list[tuple[bytes, ...]]] = [[], []]
        datasets = [loader.to_tf(service=service, job_name="one name") for loader in parts]
        for batches in zip(*datasets, strict=False):
            for got, batch in zip(found, batches, strict=True):
                got.append(contents(batch))
        for got, loader in zip(found, parts, strict=True):
            assert len(got) >= 50
            assert set(got) <= set(expected(loader, 0))

    @pytest.mark.parametrize("name", ["", 3])
    def test_a_name_is_a_name(self, service: str, view: ooc.View, name: Any) -> None:
        with pytest.raises(ArgumentError, match="`job_name` must be a name"):
            view.batches(10).to_tf(service=service, job_name=name)

    def test_a_name_needs_a_service(self, view: ooc.View) -> None:
        with pytest.raises(ArgumentError, match="`job_name` must be None without `service`"):
            view.batches(10).to_tf(job_name="both")


class TestErrors:
    def test_an_error_in_a_worker_is_raised(self, service: str, view: ooc.View) -> None:
        loader = view.map(service_functions.fails, spec=view[0]).batches(10)
        with pytest.raises(tf.errors.UnknownError, match="OSError: the disk is on fire"):
            list(loader.to_tf(service=service))

    def test_stop_iteration_does_not_end_an_epoch(self, service: str, view: ooc.View) -> None:
        loader = view.map(service_functions.stops, spec=view[0]).batches(10)
        with pytest.raises(tf.errors.UnknownError, match="StopIteration: no more"):
            list(loader.to_tf(service=service))

    def test_modules_that_are_not_allowed_are_not_imported(
        self, service: str, view: ooc.View
    ) -> None:
        loader = view.map(np.square, spec=view[0]).batches(10)
        said = r"the module 'numpy' is not allowed.*service_functions"
        with pytest.raises(tf.errors.UnknownError, match=said):
            list(loader.to_tf(service=service))

    def test_a_file_that_a_worker_does_not_see(
        self, service: str, view: ooc.View, tmp_path: Path
    ) -> None:
        dataset = view.batches(10).to_tf(service=service)
        (tmp_path / "a.npy").rename(tmp_path / "b.npy")
        with pytest.raises(tf.errors.UnknownError, match=r"MissingFileError: .*a\.npy") as caught:
            list(dataset)
        assert "Do they see the same folder?" in str(caught.value)

    def test_another_file_at_the_workers_path(
        self, service: str, view: ooc.View, tmp_path: Path
    ) -> None:
        dataset = view.batches(10).to_tf(service=service)
        np.save(tmp_path / "a.npy", np.arange(900))
        with pytest.raises(tf.errors.UnknownError, match=r"DescriptionError: .*1003.*900"):
            list(dataset)

    def test_a_file_cut_short_is_named(self, service: str, view: ooc.View, tmp_path: Path) -> None:
        dataset = view.map(service_functions.slow, spec=view[0]).batches(10).to_tf(service=service)
        iterator = iter(dataset)
        next(iterator)
        os.truncate(tmp_path / "a.npy", 1000)
        # With the rows, or the one of them at which a read that had begun came to the end; without
        # them from a worker that opens the file only now.
        said = r"TruncatedFileError: .*a\.npy'(, rows \d+, \d+|, row \d+\]|\])"
        with pytest.raises(tf.errors.UnknownError, match=said):
            list(iterator)

    def test_a_function_with_another_result_than_its_spec(
        self, service: str, view: ooc.View
    ) -> None:
        spec = ooc.ArraySpec((3,), np.dtype("f4"))
        loader = view.map(service_functions.slow, spec=spec).batches(10)
        with pytest.raises(tf.errors.UnknownError, match=r"MapError: .*\(3,\) float32"):
            list(loader.to_tf(service=service))

    def test_a_function_that_cannot_be_sent_fails_at_the_call(
        self, service: str, view: ooc.View
    ) -> None:
        with pytest.raises(DescriptionError, match="a lambda has no name"):
            view.map(lambda x: x).batches(10).to_tf(service=service)
        with pytest.raises(DescriptionError, match="array in memory"):
            ooc.open(np.arange(10)).batches(10).to_tf(service=service)

    def test_no_dispatcher(self, view: ooc.View) -> None:
        with socket.socket() as taken:  # a port on which nobody listens
            taken.bind(("127.0.0.1", 0))
            address = f"localhost:{taken.getsockname()[1]}"
            with pytest.raises(ServiceError, match=f"{address}' does not: .*oocdata dispatcher"):
                view.batches(10).to_tf(service=address)

    @pytest.mark.parametrize(
        "service", ["localhost", "localhost:", ":5050", "a:b", "a:0", "a:70000", "http://a:1", 5050]
    )
    def test_invalid_addresses(self, view: ooc.View, service: Any) -> None:
        with pytest.raises(ArgumentError, match="'HOST:PORT'"):
            view.batches(10).to_tf(service=service)

    def test_an_iterator_can_not_be_saved(
        self, service: str, view: ooc.View, tmp_path: Path
    ) -> None:
        iterator = iter(view.batches(10).to_tf(service=service))
        next(iterator)
        with pytest.raises(tf.errors.FailedPreconditionError):
            tf.train.Checkpoint(iterator=iterator).save(tmp_path / "it")


@pytest.mark.long
class TestKilled:
    """The tests depend on their order: a killed worker stays known to its dispatcher."""

    @pytest.fixture
    def loader(self, view: ooc.View, monkeypatch: pytest.MonkeyPatch) -> ooc.Loader:
        monkeypatch.setattr(delivery, "PATIENCE", 1.0)
        return view.map(service_functions.slow, spec=view[0]).batches(10, shuffle=True)

    def test_a_worker_killed_within_an_epoch(self, mortal: Cluster, loader: ooc.Loader) -> None:
        dataset = loader.to_tf(service=mortal.main.address)
        got = []
        for batch in dataset:
            got.append(contents(batch))
            if len(got) == 20:
                mortal.servers[1].process.send_signal(signal.SIGKILL)
        assert sorted(got) == expected(loader, 0)
        assert drawn(dataset) == expected(loader, 1)

    def test_all_workers_killed_and_another_one_started(
        self, mortal: Cluster, loader: ooc.Loader
    ) -> None:
        dataset = loader.to_tf(service=mortal.main.address)
        got = []
        with ThreadPoolExecutor() as pool:
            for batch in dataset:
                got.append(contents(batch))
                if len(got) == 20:
                    for server in mortal.servers[1:]:
                        server.kill()
                    started = pool.submit(mortal.worker)
            started.result()
        assert sorted(got) == expected(loader, 0)

    def test_no_batch_of_a_shared_epoch_is_delivered_twice(
        self, loader: ooc.Loader, view: ooc.View
    ) -> None:
        """tf.data service delivers at most once, and waits for a worker at the same address."""
        with cluster_of(1) as cluster:
            lost = cluster.worker("--port", str(lasting_ports(1)[0]))
            dataset = loader.to_tf(service=cluster.main.address, job_name="both")
            got = []
            with ThreadPoolExecutor() as pool:
                for batch in dataset:
                    got.append(contents(batch))
                    if len(got) == 20:
                        lost.kill()
                        started = pool.submit(cluster.worker, "--port", str(lost.port))
                started.result()
            assert len(set(got)) == len(got)
            assert set(got) <= set(expected(loader, 0))
            assert len(got) > 60  # lost are the runs of up to 8 batches that the worker had read
            assert drawn(dataset) == expected(loader, 1)

    def test_a_dispatcher_killed_and_started_again(
        self, loader: ooc.Loader, tmp_path: Path
    ) -> None:
        journal = ("--journal", str(tmp_path / "journal"), "--port", str(lasting_ports(1)[0]))
        with cluster_of(2, *journal) as cluster:
            dataset = loader.to_tf(service=cluster.main.address)
            got = []
            with ThreadPoolExecutor() as pool:
                for batch in dataset:
                    got.append(contents(batch))
                    if len(got) == 20:
                        cluster.main.kill()
                        started = pool.submit(cluster.start, "dispatcher", *journal)
                started.result()
            assert sorted(got) == expected(loader, 0)

    def test_a_dispatcher_without_a_journal(self, loader: ooc.Loader) -> None:
        port = ("--port", str(lasting_ports(1)[0]))
        with cluster_of(1, *port) as cluster, ThreadPoolExecutor() as pool:
            iterator = iter(loader.to_tf(service=cluster.main.address))
            next(iterator)
            cluster.main.kill()
            started = pool.submit(cluster.start, "dispatcher", *port)
            forgotten = "dispatcher restart|Iteration id .* not found"  # the first request's
            with pytest.raises(tf.errors.NotFoundError, match=forgotten):
                list(iterator)
            started.result()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
    )


def own_address() -> str | None:
    """Return an address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found: str = probe.getsockname()[0]
        return None if found.startswith("127.") else found


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 5).close()
    except OSError:
        return False
    return True


@pytest.mark.long
class TestCommands:
    @pytest.mark.parametrize(
        ("arguments", "said", "code"),
        [
            (["dispatcher", "--port", "{taken}"], "--port must be free; {taken} is not", 1),
            (
                ["worker", "--dispatcher", "{service}", "--port", "{taken}"],
                "--port must be free",
                1,
            ),
            (
                ["worker", "--dispatcher", "localhost:{free}", "--wait", "0"],
                "a dispatcher that answers",
                1,
            ),
            (["worker", "--dispatcher", "node7:5050"], "--host must be the name", 2),
            (["worker", "--dispatcher", "5050"], "'HOST:PORT'", 2),
            (
                ["worker", "--dispatcher", "{service}", "--allow", "nosuch.module"],
                "'nosuch.module' can't",
                2,
            ),
        ],
        ids=["port", "worker's port", "no dispatcher", "no name", "no address", "no module"],
    )
    def test_a_server_that_cannot_start_reports_why(
        self, cluster: Cluster, arguments: list[str], said: str, code: int
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            words = {
                "taken": str(cluster.main.port),
                "service": cluster.main.address,
                "free": str(free.getsockname()[1]),
            }
            result = run(*(part.format(**words) for part in arguments))
        assert result.returncode == code
        assert result.stdout == ""
        assert said.format(**words) in " ".join(result.stderr.split())
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
    def test_a_server_ends_on_a_signal(self, number: signal.Signals) -> None:
        with cluster_of(1) as made:
            for server in reversed(made.servers):
                server.process.send_signal(number)
            assert [server.process.wait(60) for server in made.servers] == [0, 0]

    def test_only_this_machine_is_served(self, cluster: Cluster) -> None:
        address = own_address()
        if address is None:
            pytest.skip("this machine has no other address than loopback")
        for server in cluster.servers:
            assert server.address.startswith("localhost:")
            assert answers("localhost", server.port)
            assert not answers(address, server.port)

    def test_others_are_served_on_request(self, view: ooc.View) -> None:
        address = own_address()
        if address is None:
            pytest.skip("this machine has no other address than loopback")
        made = Cluster(fork=False)
        try:
            port = lasting_ports(1)[0]
            # The worker waits for its dispatcher.
            with ThreadPoolExecutor() as pool:
                place = ("--dispatcher", f"{address}:{port}")
                started = pool.submit(made.start, "worker", *place, "--host", address)
                dispatcher = made.dispatcher("--host", address, "--port", str(port))
                worker = started.result()
            assert dispatcher.address == f"{address}:{port}"
            assert worker.address.startswith(address)
            assert answers(address, dispatcher.port)
            assert answers(address, worker.port)
            loader = view.batches(100)
            assert drawn(loader.to_tf(service=dispatcher.address)) == expected(loader, 0)
        finally:
            made.end()
