"""Which API servers are reached through an HTTP proxy, by the rules of Go and kubectl."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.link.kube.http_proxy import has_proxy, may_have_proxy

_PROXY = {"HTTPS_PROXY": "http://proxy.site.org:3128"}


def view(server: str, **more: str) -> bytes:
    return json.dumps({"clusters": [{"name": "a", "cluster": {"server": server, **more}}]}).encode()


@pytest.mark.parametrize(
    ("server", "exceptions", "found"),
    [
        ("https://api.site.org:6443", "", True),
        ("https://api.site.org:6443", "other.org, example.com", True),
        ("https://api.site.org:6443", "site.org", False),
        ("https://api.site.org:6443", ".site.org", False),
        ("https://api.site.org:6443", "*.site.org", False),
        ("https://API.site.org:6443", "api.Site.org:6443", False),
        ("https://api.site.org:6443", "api.site.org:443", True),
        ("https://api.site.org", "api.site.org:443", False),
        ("https://site.org", ".site.org", True),
        ("https://mysite.org", "site.org", True),
        ("https://api.site.org", "*", False),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "10.2.0.0/16,10.1.2.3", False),
        ("https://10.1.2.3:6443", "10.1.2", True),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
    ],
)
def test_the_variables_as_go_reads_them(server: str, exceptions: str, found: bool) -> None:
    assert has_proxy(view(server), {**_PROXY, "NO_PROXY": exceptions}) is found
    lower = {"https_proxy": "proxy:1", "no_proxy": exceptions}
    assert has_proxy(view(server), lower) is found
    assert has_proxy(view(server), {"NO_PROXY": exceptions}) is False


def test_the_kubeconfigs_own_proxy_counts_for_every_server() -> None:
    here = view("https://127.0.0.1:6443", **{"proxy-url": "socks5://127.0.0.1:1080"})
    assert has_proxy(here, {"NO_PROXY": "*"})
    assert may_have_proxy(here.decode(), {}) and may_have_proxy("", _PROXY)
    assert not may_have_proxy("server: https://a", {"NO_PROXY": "b"})


@given(st.binary(max_size=60), st.text(max_size=60), st.text(max_size=40))
def test_any_answer_and_any_rule_is_read(answer: bytes, rules: str, server: str) -> None:
    environ = {**_PROXY, "NO_PROXY": rules}
    assert has_proxy(answer, environ) in (True, False)
    assert has_proxy(view(server), environ) in (True, False)
    assert has_proxy(view("https://10.0.0.1"), environ) in (True, False)
