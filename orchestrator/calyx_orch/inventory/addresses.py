"""Addresses as people write them: `user@host`, `[::1]:22`, names, IPv4, IPv6; and when two of them are the same machine."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

_DOTTED = re.compile(r"^[0-9.]+$", re.ASCII)
_BAD = re.compile(r"[\s/\\,;'\"`$|<>(){}!*?#&]")


class Endpoint(NamedTuple):
    """The parts of `[user@]host[:port]`; None: not said."""

    address: str
    user: str | None = None
    port: int | None = None


def split_endpoint(text: str) -> Endpoint:
    """`[user@]host[:port]`; the last @ decides, IPv6 with a port stands in brackets. ValueError: what is wrong with it."""
    user, at, rest = text.rpartition("@")
    if at and not user:
        raise ValueError(f"{text!r} has no user before the @")
    port = None
    if rest.startswith("["):
        host, closed, tail = rest[1:].partition("]")
        if not closed or (tail and not tail.startswith(":")):
            raise ValueError(f"{text!r}: an IPv6 address with a port is written [::1]:22")
        port = _port(tail[1:], text) if tail else None
        if ":" not in host:
            raise ValueError(f"{text!r}: only an IPv6 address stands in brackets")
    elif rest.count(":") == 1:
        host, _, written = rest.partition(":")
        port = _port(written, text)
    else:
        host = rest
    return Endpoint(check_host(host), user if at else None, port)


def check_host(host: str) -> str:
    """A host name or IP address without brackets. ValueError: it cannot be one."""
    if not host:
        raise ValueError("the address is empty")
    if host.startswith("-") or _BAD.search(host) or len(host) > 255:
        raise ValueError(f"{host[:60]!r} is no host name or address")
    plain, _, zone = host.partition("%")
    if ":" in plain or _DOTTED.match(host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(f"{host!r} is no valid IP address") from None
    elif zone:
        raise ValueError(f"{host!r} is no host name or address")
    return host


def canonical(host: str) -> str:
    """The same text for the same machine, as far as spelling tells: case, final dot, loopback names, mapped IPv4."""
    name = host.lower().rstrip(".")
    if name in ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"):
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if address.is_loopback:
            return "127.0.0.1"
    return str(address)


def _port(written: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,4}", written, re.ASCII) or int(written) > 65535:
        raise ValueError(f"{text!r}: {written!r} is no port (1 to 65535)")
    return int(written)
