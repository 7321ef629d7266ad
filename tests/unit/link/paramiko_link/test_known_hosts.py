"""known_hosts as the paramiko link reads and keeps it."""

from __future__ import annotations

import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paramiko import Ed25519Key

from tunnelkit.errors import HostKeyError
from tunnelkit.link.paramiko_link.known_hosts import (
    KnownHosts,
    login_rules,
    node_rules,
    read_entries,
)
from tunnelkit.link.paramiko_link.ssh_config import HostConfig

HOST = HostConfig("login", "10.0.0.1", 22, "ann", "yes", ())


def key(tmp_path: Path, name: str) -> Ed25519Key:
    path = tmp_path / name
    if not path.exists():
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)]
        subprocess.run(words, check=True)
    return Ed25519Key.from_private_key_file(str(path))


def known(tmp_path: Path, text: str, *, strict: str = "yes", host: HostConfig = HOST) -> KnownHosts:
    path = tmp_path / "known_hosts"
    path.write_text(text)
    return KnownHosts(host, [path], strict=strict)


@pytest.mark.parametrize("names", ["10.0.0.1", "x,10.0.0.1", "10.0.*", "10.0.0.?"])
def test_a_known_key(tmp_path: Path, names: str) -> None:
    good = key(tmp_path, "a")
    rules = known(tmp_path, f"# comment\n{names} ssh-ed25519 {good.get_base64()} me\n")
    rules.check(good, None)
    assert rules.key_types() == ["ssh-ed25519"]
    with pytest.raises(HostKeyError, match="has changed"):
        rules.check(key(tmp_path, "b"), None)


def test_a_pattern_may_exclude(tmp_path: Path) -> None:
    good = key(tmp_path, "a")
    rules = known(tmp_path, f"10.0.*,!10.0.0.1 ssh-ed25519 {good.get_base64()}\n")
    with pytest.raises(HostKeyError, match="is not known"):
        rules.check(good, None)


def test_hashed_by_ssh_keygen(tmp_path: Path) -> None:
    good = key(tmp_path, "a")
    host = replace(HOST, port=2222)
    known(tmp_path, f"[10.0.0.1]:2222 ssh-ed25519 {good.get_base64()}\n")
    words = ["ssh-keygen", "-q", "-H", "-f", str(tmp_path / "known_hosts")]
    subprocess.run(words, check=True, capture_output=True)
    text = (tmp_path / "known_hosts").read_text()
    assert "10.0.0.1" not in text
    known(tmp_path, text, host=host).check(good, None)


def test_a_key_under_the_plain_name_counts_for_another_port(tmp_path: Path) -> None:
    good = key(tmp_path, "a")
    host = replace(HOST, port=2222)
    rules = known(tmp_path, f"10.0.0.1 ssh-ed25519 {good.get_base64()}\n", host=host)
    rules.check(good, None)
    with pytest.raises(HostKeyError, match="is not known"):
        rules.check(key(tmp_path, "b"), None)


def test_revoked_keys_and_authorities(tmp_path: Path) -> None:
    good = key(tmp_path, "a")
    line = f"10.0.0.1 ssh-ed25519 {good.get_base64()}\n"
    with pytest.raises(HostKeyError, match="is revoked"):
        known(tmp_path, f"{line}@revoked {line}").check(good, None)
    authority = known(tmp_path, f"@cert-authority {line}")
    assert not authority.is_known
    with pytest.raises(HostKeyError, match="is not known"):
        authority.check(good, None)


def test_a_new_key_is_asked_for_and_kept(tmp_path: Path) -> None:
    good = key(tmp_path, "a")
    rules = known(tmp_path, "other x y", strict="ask")  # no newline at its end
    with pytest.raises(HostKeyError):
        rules.check(good, None)
    with pytest.raises(HostKeyError):
        rules.check(good, lambda question, echo: "no")
    rules.check(good, lambda question, echo: "yes" if "SHA256:" in question else "")
    text = (tmp_path / "known_hosts").read_text()
    assert text == f"other x y\n10.0.0.1 ssh-ed25519 {good.get_base64()}\n"
    known(tmp_path, text).check(good, None)


def test_a_hashed_name_is_kept_as_ssh_finds_it(tmp_path: Path) -> None:
    good = key(tmp_path, "a")
    host = replace(HOST, hash_known_hosts=True)
    known(tmp_path, "", strict="accept-new", host=host).check(good, None)
    words = ["ssh-keygen", "-F", "10.0.0.1", "-f", str(tmp_path / "known_hosts")]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_an_unchecked_login_is_checked_all_the_same(tmp_path: Path) -> None:
    own = tmp_path / "own" / "known_hosts"
    host = replace(HOST, strict="off")
    login_rules(host, own).check(key(tmp_path, "a"), None)
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    with pytest.raises(HostKeyError, match="has changed"):
        login_rules(host, own).check(key(tmp_path, "b"), None)


def test_a_new_node_goes_into_tks_own_file(tmp_path: Path) -> None:
    own, users = tmp_path / "own", tmp_path / "users"
    users.write_text("")
    host = replace(HOST, name="node1", strict="ask", known_hosts=(users,))
    node_rules(host, own, alias="node1.via.login").check(key(tmp_path, "a"), None)
    assert own.read_text().startswith("node1.via.login ") and users.read_text() == ""
    strict = replace(host, strict="yes")
    with pytest.raises(HostKeyError, match="is not known"):
        node_rules(strict, own, alias="node1.via.login").check(key(tmp_path, "a"), None)


@given(st.text())
def test_any_file_can_be_read(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any_known_hosts"
    path.write_text(text, encoding="utf-8")
    for entry in read_entries(path):
        entry.is_for("host")
