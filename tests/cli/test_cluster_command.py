"""`oocdata worker` ends on a signal, whatever it waits for."""

from __future__ import annotations

import signal
import socket

import fork_server
import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_whose_dispatcher_has_gone_can_be_ended(number: signal.Signals) -> None:
    """TensorFlow itself would retry for ever if the dispatcher is gone."""
    with socket.create_server(("localhost", 0)) as gone:
        gone.settimeout(120)
        address = f"localhost:{gone.getsockname()[1]}"
        main = "from oocdata.cli import main; main()"
        worker = fork_server.start(main, "worker", "--dispatcher", address)
        with worker:
            gone.accept()[0].close()  # the check whether it answers at all
            gone.accept()[0].close()  # TensorFlow's connection
            worker.send_signal(number)
            out, error = worker.communicate(timeout=120)
    assert (worker.returncode, out, error) == (-number, "", "")
