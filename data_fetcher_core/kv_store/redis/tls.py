"""What to do when a connection over TLS does not come about. Nothing is ever sent without TLS."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any

_NOT_YET_VALID, _EXPIRED, _WRONG_NAME, _WRONG_ADDRESS = 9, 10, 62, 64
_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_AUTHORITY = "name its authority: ?ssl_ca_certs=/path/to/ca.pem"
_CERTIFICATES = {
    _NOT_YET_VALID: "its certificate is not valid yet: compare the clocks of both machines",
    _EXPIRED: "renew the certificate of the server",
    _WRONG_NAME: "use the name that its certificate is for, or issue one for this name",
    _WRONG_ADDRESS: "use the name that its certificate is for, or issue one for this address",
}
NO_TLS = "a server without TLS never answers: switch TLS on there"
_REFUSED = (
    "the server must offer TLS 1.2 or newer, and may ask for a certificate: "
    "?ssl_certfile=/path/to/client.pem&ssl_keyfile=/path/to/client.key"
)


def advise_on_tls(cause: BaseException | None, options: Mapping[str, Any]) -> str:
    """The remedy for what broke a connection; empty if TLS had no part in it."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _CERTIFICATES.get(cause.verify_code, _AUTHORITY)
    if isinstance(cause, ssl.SSLError):
        return _advise_on_handshake(cause, options)
    if isinstance(cause, FileNotFoundError | PermissionError | IsADirectoryError):
        missing = {name: file for name, file in options.items() if not _is_readable(file)}
        return f"cannot be read: {_named(missing)}"
    return _REFUSED if isinstance(cause, ConnectionResetError) else ""


def is_for_good(cause: BaseException | None) -> bool:
    """Whether asking again will not help. A peer that leaves may be back in a moment."""
    return not isinstance(cause, ConnectionResetError | ssl.SSLEOFError | ssl.SSLZeroReturnError)


def _advise_on_handshake(cause: ssl.SSLError, options: Mapping[str, Any]) -> str:
    if cause.library in {"PEM", "X509"} or "PEM" in str(cause):
        return f"holds no certificate or key that can be used: {_named(options)}"
    return NO_TLS if cause.reason == "WRONG_VERSION_NUMBER" else _REFUSED


def _is_readable(file: Any) -> bool:
    return not isinstance(file, str) or os.access(file, os.R_OK)


def _named(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={options[name]}" for name in _FILES if name in options)
