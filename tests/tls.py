"""Certificates for the tests: a throw-away authority, and what it signs."""

from __future__ import annotations

import ssl
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


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

    def issue(self, directory: Path, name: str) -> Path:
        """A file with a key and its certificate."""
        file = directory / f"{name}.pem"
        self._authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(str(file))
        return file

    def outdated_context(self, host: str, newest: ssl.TLSVersion) -> ssl.SSLContext:
        """One that offers nothing newer than this, and would take any cipher."""
        context = self.server_context(host)
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = newest
        return context


def make_authority(directory: Path) -> Authority:
    authority = trustme.CA()
    ca_file = directory / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    return Authority(ca_file, authority)


def self_signed_context(directory: Path, host: str) -> ssl.SSLContext:
    """The certificate of somebody who vouches for himself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = directory / "self-signed.pem"
    file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + certificate.public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@dataclass(frozen=True)
class TlsRedis:
    """A server that speaks TLS only."""

    port: int
    authority: Authority

    @property
    def url(self) -> str:
        """Verified against the test authority, as a user with a private one would write it."""
        return f"rediss://localhost:{self.port}/0?ssl_ca_certs={self.authority.ca_file}"
