"""A bucket in moto, which stands in for S3."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from obstore.store import S3Store

from servers.program import PATIENCE, Program, UnavailableError

if TYPE_CHECKING:
    from servers.link import Link

__all__ = ["S3"]

# A process of its own: its threads would hold the GIL of the client that is tested. It ends when
# its input does.
SERVER = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(sys.argv[1], 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class S3(Program):
    """Serve an empty bucket by moto, in memory; a context manager.

    Parameters
    ----------
    bucket
        Its name, of three letters at least.
    link
        Where it runs; by default on this machine's own network.

    Raises
    ------
    UnavailableError
        If moto is not installed.

    Notes
    -----
    moto checks no signatures, ends the connection after each answer, and copies the whole object
    for each range: it is for what a client does with small objects, not for how fast. ``Nginx``
    over a folder that holds a folder named like the bucket answers the same reads (no list, no
    writes), quickly and on lasting connections.
    """

    url: str

    def __init__(self, bucket: str = "data", link: Link | None = None) -> None:
        super().__init__(link)
        self.bucket = bucket

    def start(self) -> None:
        """Start moto, wait until it serves, and make the bucket."""
        if find_spec("moto") is None:
            raise UnavailableError("moto is not installed (pip install moto[s3] flask flask-cors)")
        process = self.run([sys.executable, "-c", SERVER, self.address])
        assert process.stdout is not None
        port = process.stdout.readline().decode().strip()
        if not port:
            raise RuntimeError("moto did not start; see its message above")
        self.url = f"http://{self.address}:{port}"
        bucket = Request(f"{self.url}/{self.bucket}", method="PUT")
        with urlopen(bucket, timeout=PATIENCE):
            pass

    @property
    def environment(self) -> dict[str, str]:
        """What clients find the server by; a proxy's URL may stand for ``AWS_ENDPOINT_URL``."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def store(self, prefix: str = "") -> S3Store:
        """Return obstore's view of the bucket, or of what is under a prefix."""
        return S3Store(
            self.bucket,
            prefix=prefix or None,
            endpoint=self.url,
            access_key_id="test",
            secret_access_key="test",
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def upload(self, folder: str | Path, prefix: str = "") -> int:
        """Put all files of a folder into the bucket, and return how many they are."""
        paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        store = self.store(prefix)
        turns = asyncio.Semaphore(32)

        async def put(path: Path) -> None:
            async with turns:
                await store.put_async(path.relative_to(folder).as_posix(), path)

        async def put_all() -> None:
            await asyncio.gather(*map(put, paths))

        asyncio.run(put_all())
        return len(paths)
