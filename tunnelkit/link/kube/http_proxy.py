"""Tell API servers that are reached through an HTTP proxy, by kubectl's rules: those of Go.

`kubectl proxy` sends its requests through one, but its upgrades, and so exec streams, directly.
Sources: `proxy-url` of a kubeconfig's cluster; Go's golang.org/x/net/http/httpproxy.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

_PROXY_NAMES = ("HTTPS_PROXY", "https_proxy")
_EXCEPT_NAMES = ("NO_PROXY", "no_proxy")


def may_have_proxy(kubeconfig: str, environ: Mapping[str, str]) -> bool:
    """Return False if neither the text of a kubeconfig nor the environment names a proxy."""
    return "proxy-url" in kubeconfig or bool(_first(environ, _PROXY_NAMES))


def has_proxy(view: bytes, environ: Mapping[str, str]) -> bool:
    """Return True if the cluster is reached through a proxy.

    view: what `kubectl config view --minify -o json` prints of the context."""
    try:
        cluster = json.loads(view)["clusters"][0]["cluster"]
        server, own = str(cluster["server"]), cluster.get("proxy-url")
        host, port = urlsplit(server).hostname or "", urlsplit(server).port or 443
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
    if own:
        return True
    return bool(_first(environ, _PROXY_NAMES)) and not _is_excepted(
        host.lower(), port, _first(environ, _EXCEPT_NAMES)
    )


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(one.strip().lower(), host, address, port) for one in exceptions.split(","))


def _matches(
    rule: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int
) -> bool:
    if rule == "*":
        return True
    if "/" in rule and address is not None:
        try:
            return address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    name, colon, number = rule.rpartition(":")
    if colon and number.isdigit() and _address(rule) is None:
        if int(number) != port:
            return False
        rule = name.strip("[]")
    if address is not None:
        return _address(rule) == address
    bare = rule.removeprefix("*").removeprefix(".")
    # `.example.com` and `*.example.com` are of its subdomains alone.
    return bool(bare) and (host.endswith(f".{bare}") or host == rule)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
