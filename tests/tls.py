"""Certificates for the tests: a throw-away authority, and what it signs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Authority:
    ca_file: Path
    _authority: trustme.CA

    def server_context(self, host: str, *, expired: bool = False) -> ssl.SSLContext:
        """What a server for ``host`` listens with."""
        end = datetime.now(UTC) - timedelta(days=1) if expired else None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(host, not_after=end).configure_cert(context)
        return context


def make_authority(directory: Path) -> Authority:
    authority = trustme.CA()
    ca_file = directory / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    return Authority(ca_file, authority)


@dataclass(frozen=True)
class TlsRedis:
    """A server that speaks TLS only."""

    port: int
    authority: Authority

    @property
    def url(self) -> str:
        """Verified against the test authority, as a user with a private one would write it."""
        return f"rediss://localhost:{self.port}/0?ssl_ca_certs={self.authority.ca_file}"
