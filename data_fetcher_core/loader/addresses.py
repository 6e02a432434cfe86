"""Which addresses are of the public internet, and which are refused. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Network = IPv4Network | IPv6Network

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


def is_refused(text: str, allowed: Sequence[Network] = ()) -> bool:
    """Whether the address is not of the public internet, nor of a network that is ``allowed``.

    What cannot be read as an address is refused: nobody knows where it would lead.
    """
    try:
        address = _plain(ipaddress.ip_address(text))
    except ValueError:
        return True
    return not _is_public(address) and not any(address in network for network in allowed)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address where an IPv6 address is only another way to write one."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved
