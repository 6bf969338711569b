"""Parts of the service that need no cluster: delivery, reading in a worker, TensorFlow's table."""

from __future__ import annotations

import ast
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from ports import lasting_ports
from recording import RecordingSource

import oocdata as ooc
from oocdata.describe import as_json
from oocdata.errors import (
    DescriptionError,
    MissingDependencyError,
    ServiceError,
    WorkerError,
)
from oocdata.frontends import delivery, service, serving
from oocdata.frontends.delivery import ATTEMPTS, Delivery, parts_of
from oocdata.frontends.serving import Readers
from oocdata.runs import Pass
from oocdata.tools import servers as listening


class TestDelivery:
    @given(st.data())
    def test_every_step_is_requested_until_it_arrives(self, data: st.DataObject) -> None:
        steps = data.draw(st.integers(1, 20))
        first = data.draw(st.integers(0, 2 * steps))
        epochs = data.draw(st.integers(1, 3))
        length = epochs * steps - first % steps
        part_steps = data.draw(st.integers(1, 7))
        got = Delivery(steps, part_steps, lambda: Pass(first, length, steps, 1), shared=False)
        begun = got.begin()
        assert begun == first
        came = []
        for epoch in range(begun // steps, (begun + length - 1) // steps + 1):
            for attempt in range(ATTEMPTS + 1):
                parts = got.missing(begun, epoch, attempt).tolist()
                asked = [step for start, stop in parts for step in range(start, stop)]
                if asked and attempt < ATTEMPTS - 1:
                    asked = data.draw(st.lists(st.sampled_from(asked), unique=True))
                for step in asked:
                    assert got.arrived(begun, epoch, step)
                    came.append(epoch * steps + step)
        assert sorted(came) == list(range(first, first + length))
        assert got._epochs == {}

    def test_a_step_that_never_arrives_is_an_error(self) -> None:
        got = Delivery(4, 4, lambda: Pass(0, 4, 4, 1), shared=False)
        begun = got.begin()
        for attempt in range(ATTEMPTS):
            got.missing(begun, 0, attempt)
        got.arrived(begun, 0, 1)
        with pytest.raises(WorkerError, match="every step of epoch 0; 3 did not come") as caught:
            got.missing(begun, 0, ATTEMPTS)
        assert (caught.value.epoch, caught.value.step) == (0, 0)

    def test_missing_steps_of_a_shared_epoch_are_unknown(self) -> None:
        got = Delivery(4, 4, lambda: Pass(0, 4, 4, 1), shared=True)
        begun = got.begin()
        assert got.missing(begun, 0, 0).tolist() == [[0, 4]]
        for attempt in range(1, ATTEMPTS + 1):
            assert got.missing(begun, 0, attempt).tolist() == []

    def test_when_a_step_is_lost(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 100.0
        monkeypatch.setattr(delivery.time, "monotonic", lambda: now)
        got = Delivery(4, 4, lambda: Pass(0, 4, 4, 1), shared=False)
        begun = got.begin()
        got.missing(begun, 0, 0)
        assert got.arrived(begun, 0, 0)
        now += 1000  # the trainer took long, and requested nothing meanwhile
        assert got.arrived(begun, 0, -1)
        now += delivery.PATIENCE - 1
        assert got.arrived(begun, 0, -1)
        assert got.arrived(begun, 0, 1)
        assert got.arrived(begun, 0, -1)
        now += delivery.PATIENCE + 1
        assert not got.arrived(begun, 0, -1)
        got.missing(begun, 0, 1)
        assert got.arrived(begun, 0, -1)
        now += delivery.PATIENCE + 1  # the second time, twice as long
        assert got.arrived(begun, 0, -1)
        now += delivery.PATIENCE
        assert not got.arrived(begun, 0, -1)


@given(st.sets(st.integers(0, 60)), st.integers(1, 7), st.booleans())
def test_parts_of_steps(chosen: set[int], most: int, short: bool) -> None:
    steps = np.array(sorted(chosen), np.int64)
    last = max(chosen, default=0)
    parts = parts_of(steps, most, last if short else -1).tolist()
    assert not (short and chosen) or parts[-1] == [last, last + 1]
    assert all(0 < stop - start <= most for start, stop in parts)
    assert [step for start, stop in parts for step in range(start, stop)] == steps.tolist()


class TestDealing:
    """Count which workers decode which chunks."""

    def decoded(self, loader: ooc.Loader, together: int) -> int:
        """Return the sum of the blocks that four workers need, which take parts in turn."""
        needed: list[set[int]] = [set() for _ in range(4)]
        for number, first in enumerate(range(0, len(loader), together)):
            for step in range(first, min(first + together, len(loader))):
                needed[number % 4].update((loader.positions(step) // 32).tolist())
        return sum(map(len, needed))

    def test_neighbouring_steps_of_a_block_shuffle(self) -> None:
        rows = ooc.View.of(RecordingSource(np.arange(200_000), chunks=32))
        loader = rows.batches(32, shuffle=ooc.BlockShuffle(32, 64))
        part_steps = service.steps_per_part(loader)
        assert part_steps % loader.steps_together == 0
        assert -(-len(loader) // part_steps) >= 8
        blocks = 200_000 / 32
        assert self.decoded(loader, part_steps) < 1.5 * blocks
        assert self.decoded(loader, loader.steps_together) > 1.8 * blocks

    def test_runs_of_addressable_rows(self) -> None:
        loader = ooc.open(np.arange(20_000)).batches(10, shuffle=True)
        assert service.steps_per_part(loader) == loader.steps_together


@pytest.fixture
def view(tmp_path: Path) -> ooc.View:
    np.save(tmp_path / "a.npy", np.arange(95))
    return ooc.open(tmp_path / "a.npy")


class TestReaders:
    def read(
        self, readers: Readers, loader: ooc.Loader, start: int, stop: int, opening: bytes = b"1"
    ) -> list[Any]:
        text = as_json(loader).encode()
        return readers.read(text, opening, np.int64(2), np.int64(start), np.int64(stop))

    def test_a_run_is_divided_into_batches(self, view: ooc.View) -> None:
        loader = view.batches(10, shuffle=True)
        readers = Readers()
        for start, stop in ((0, 4), (8, 9), (9, 10)):  # the last batch is short
            (batches,) = self.read(readers, loader, start, stop)
            assert_array_equal(batches, [loader.batch(step, 2) for step in range(start, stop)])

    def test_a_loader_is_made_once_for_each_dataset(
        self, view: ooc.View, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from oocdata.frontends import serving

        made = []

        def counted(*arguments: Any, **named: Any) -> ooc.Loader:
            made.append(real(*arguments, **named))
            return made[-1]

        real = serving.from_json
        monkeypatch.setattr(serving, "from_json", counted)
        readers = Readers()
        for opening in (b"1", b"1", b"2", b"1"):
            self.read(readers, view.batches(10), 0, 4, opening)
        assert len(made) == 2
        for number in range(40):
            self.read(readers, view.batches(10), 0, 4, str(number).encode())
        assert readers.loader.cache_info().currsize == 16

    def test_an_error_names_the_original(self, view: ooc.View, tmp_path: Path) -> None:
        loader = view.batches(10)
        text = as_json(loader).encode()
        (tmp_path / "a.npy").unlink()
        with pytest.raises(RuntimeError, match=r"MissingFileError: .*a\.npy"):
            Readers().read(text, b"1", 0, 0, 4)

    @pytest.mark.parametrize(
        "text", [b"", b"\x80\x04N.", b"[" * 100_000, b"null", b'{"format": 1}'], ids=len
    )
    def test_invalid_descriptions(self, text: bytes) -> None:
        """A pickle is not a description either: nothing here would load it."""
        with pytest.raises(DescriptionError, match="description must"):
            Readers().loader(text, b"1")

    @pytest.mark.parametrize(("epoch", "start", "stop"), [(-1, 0, 2), (0, 8, 12), (0, -3, -1)])
    def test_steps_that_do_not_exist(
        self, view: ooc.View, epoch: int, start: int, stop: int
    ) -> None:
        text = as_json(view.batches(10)).encode()
        with pytest.raises(RuntimeError, match="PositionError: `step` must"):
            Readers().read(text, b"1", epoch, start, stop)


def test_no_module_of_the_service_unpickles() -> None:
    root = Path(ooc.__file__).parent
    modules = [*(root / "describe").glob("*.py")]
    modules += [root / "frontends" / f"{name}.py" for name in ("serving", "service")]
    modules += [*(root / "tools" / "cluster").glob("*.py")]
    for module in modules:
        imported = {
            name.name
            for node in ast.walk(ast.parse(module.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        assert not imported & {"pickle", "cloudpickle", "marshal", "shelve"}, module


def called(name: str, inputs: list[Any]) -> list[tf.Tensor]:
    made: list[tf.Tensor] = tf.raw_ops.PyFuncStateless(input=inputs, token=name, Tout=[tf.int64])
    return made


class TestContract:
    """Behaviour of TensorFlow, beside its public interface, that this package relies on."""

    def test_a_function_is_called_by_its_name(self) -> None:
        serving.register("oocdata.test", lambda text, n: [np.full(n, len(text))])
        (found,) = called("oocdata.test", ["äöü", tf.constant(3)])
        assert found.numpy().tolist() == [6, 6, 6]  # bytes

    def test_in_a_graph_too(self) -> None:
        serving.register("oocdata.test", lambda n: [n * 2])
        dataset = tf.data.Dataset.range(4).map(lambda n: called("oocdata.test", [n])[0])
        assert [int(n) for n in dataset] == [0, 2, 4, 6]

    def test_an_unregistered_name(self) -> None:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"oocdata\.nobody"):
            called("oocdata.nobody", [1])

    @pytest.mark.parametrize("changed", ["_py_funcs", "_funcs", "get"])
    def test_another_tensorflow_is_a_clear_error(
        self, monkeypatch: pytest.MonkeyPatch, changed: str
    ) -> None:
        from tensorflow.python.ops import script_ops

        if changed == "_py_funcs":
            monkeypatch.delattr(script_ops, "_py_funcs")
        elif changed == "_funcs":
            monkeypatch.setattr(script_ops._py_funcs, "_funcs", [], raising=True)
        else:
            monkeypatch.setattr(script_ops._py_funcs, "get", lambda name: None, raising=True)
        with pytest.raises(MissingDependencyError, match=f"version {tf.__version__} has"):
            serving.register("oocdata.test", list)

    def test_the_mode_is_dynamic_sharding(self) -> None:
        from tensorflow.core.protobuf import data_service_pb2

        mode = data_service_pb2.ProcessingModeDef()
        mode.ParseFromString(service._DYNAMIC)
        assert mode.sharding_policy == data_service_pb2.ProcessingModeDef.DYNAMIC

    def test_only_one_module_touches_the_table(self) -> None:
        root = Path(ooc.__file__).parent
        touching = [path.name for path in root.rglob("*.py") if "script_ops" in path.read_text()]
        assert touching == ["serving.py"]


class TestListening:
    def test_a_port_in_use(self) -> None:
        (port,) = lasting_ports(1)  # else another process may get the port
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(ServiceError, match=f"`port` must be free; {port} is not"),
        ):
            listening.free_port(port)
        assert listening.free_port(port) == port

    def test_nothing_starts_if_others_cannot_be_kept_out(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            monkeypatch.delattr(socket, "SO_BINDTODEVICE")
            with pytest.raises(ServiceError, match="--host NAME"):
                listening.only_loopback(server.getsockname()[1])
        with pytest.raises(ServiceError, match="none is found"):
            listening.only_loopback(1)

    def test_a_connection_made_too_early_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                accepted, _ = server.accept()
                with accepted:
                    listening.only_loopback(port)
                    accepted.sendall(b"still here")
                    assert client.recv(10) == b"still here"
                    monkeypatch.setattr(listening, "is_loopback", lambda host: False)
                    listening.only_loopback(port)
                    assert client.recv(10) == b""
