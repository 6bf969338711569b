"""A folder served by nginx: for benchmarks, and as a second opinion of our own server."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

from ports import lasting_ports

from servers.program import PATIENCE, Program, UnavailableError

if TYPE_CHECKING:
    from servers.link import Link

__all__ = ["Nginx"]

# As root, workers must be root too, or they could not read folders of tests.
CONFIG = """\
daemon off;
{user}
worker_processes {workers};
pid {scratch}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 10000;
    keepalive_timeout 600;
    default_type application/octet-stream;
    client_body_temp_path {scratch}/body;
    proxy_temp_path {scratch}/proxy;
    fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi;
    scgi_temp_path {scratch}/scgi;
    server {{
        listen {address}:{port} backlog=1024;
        root "{folder}";
    }}
}}
"""


class Nginx(Program):
    """Serve a folder by an nginx of its own, beside that of the system; a context manager.

    It answers ranges and ``If-Match`` with strong ETags made of the time in seconds and the size.

    Parameters
    ----------
    folder
        What is served, without a listing.
    link
        Where it runs; by default on this machine's own network.
    workers
        Processes that serve.

    Raises
    ------
    UnavailableError
        If nginx is not installed.
    """

    url: str

    def __init__(self, folder: str | Path, link: Link | None = None, workers: int = 1) -> None:
        super().__init__(link)
        self.folder = Path(folder).resolve()
        self._workers = workers
        self._scratch: str | None = None

    def start(self) -> None:
        """Start nginx and wait until a worker of it answers.

        Before, a signal to end may come while the master looks at none: it then waits for another.
        """
        nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        if nginx is None:
            raise UnavailableError("nginx is not installed (Debian: apt-get install nginx-light)")
        (port,) = lasting_ports(1)
        self._scratch = tempfile.mkdtemp(prefix="oocdata-nginx-")
        config = Path(self._scratch, "nginx.conf")
        config.write_text(
            CONFIG.format(
                user="user root;" if os.geteuid() == 0 else "",
                workers=self._workers,
                scratch=self._scratch,
                address=self.address,
                port=port,
                folder=self.folder,
            )
        )
        # It does not look at its input; so the kernel tells it when this process is gone.
        setpriv = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        command = [*setpriv, nginx, "-e", "stderr", "-p", self._scratch, "-c", str(config)]
        process = self.run(command)
        self.url = f"http://{self.address}:{port}"
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(ConnectionRefusedError):
                connection = HTTPConnection(self.address, port, timeout=PATIENCE)
                connection.request("HEAD", "/")
                connection.getresponse()
                connection.close()
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nginx did not start; see its message above: {command}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End nginx and remove its folder."""
        super().stop()
        if self._scratch is not None:
            shutil.rmtree(self._scratch)
            self._scratch = None
