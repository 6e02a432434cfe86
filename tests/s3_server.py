"""A local S3 server, in a thread of the test process, on a free port of the loopback."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moto.server import ThreadedMotoServer

from data_fetcher_core.storage import S3Storage


class S3Server:
    """Takes any credentials. Buckets are made and emptied by plain requests."""

    access_key = "AKIATESTTESTTEST"
    secret_key = "a-secret-that-nobody-may-see"

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def make_bucket(self, name: str) -> None:
        self._ask("PUT", f"/{name}")

    def reset(self) -> None:
        self._ask("POST", "/moto-api/reset")

    def storage(self, url: str, **settings: Any) -> S3Storage:
        given: dict[str, Any] = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "allow_http": True,
            "retries": 0,
        }
        return S3Storage(url, **{**given, **settings})

    def _ask(self, method: str, path: str) -> None:
        request = urllib.request.Request(self.endpoint + path, method=method)
        with urllib.request.urlopen(request, timeout=20):
            pass


@contextmanager
def running_s3() -> Iterator[S3Server]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()
        if server._server is not None:
            server._server.server_close()
