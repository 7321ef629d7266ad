"""The lab's faults: what cut, reset and distance do to connections."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from tests.lab_fixtures import ssh, ssh_argv
from tests.support.lab_rig import say_to
from tunnelkit import lab as tk_lab
from tunnelkit.errors import UsageError
from tunnelkit.lab import LabInfo


def test_a_cut_holds_bytes_back_and_heal_delivers_them(healed: LabInfo) -> None:
    with subprocess.Popen(
        [*ssh_argv(healed, "node1"), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        assert cat.stdin and cat.stdout
        try:
            say_to(cat, b"one\n")
            assert cat.stdout.readline() == b"one\n"
            tk_lab.cut(healed.dir)
            say_to(cat, b"two\n")
            argv = [*ssh_argv(healed, "login", "-o", "ConnectTimeout=1"), "true"]
            new = subprocess.run(argv, capture_output=True, timeout=30, check=False)
            assert new.returncode == 255
            os.set_blocking(cat.stdout.fileno(), False)
            assert cat.stdout.read() is None
            os.set_blocking(cat.stdout.fileno(), True)
            tk_lab.heal(healed.dir)
            assert cat.stdout.readline() == b"two\n"
            cat.stdin.close()
            assert cat.wait(timeout=20) == 0
        finally:
            cat.kill()


def test_a_reset_ends_connections_and_refuses_new_ones(healed: LabInfo) -> None:
    with subprocess.Popen(
        [*ssh_argv(healed, "node1"), "echo in; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        try:
            assert cat.stdout and cat.stdout.readline() == b"in\n"
            tk_lab.reset(healed.dir)
            assert cat.wait(timeout=20) == 255
        finally:
            cat.kill()
    done = subprocess.run(
        [*ssh_argv(healed, "login"), "true"], capture_output=True, timeout=30, check=False
    )
    assert b"refused" in done.stderr
    tk_lab.heal(healed.dir)
    assert ssh(healed, "node1", "echo back").strip() == "back"


def test_rtt_is_felt_by_every_round_trip(healed: LabInfo) -> None:
    with subprocess.Popen(
        [*ssh_argv(healed, "login"), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        assert cat.stdin and cat.stdout
        try:
            for rtt_ms in (0, 100):
                tk_lab.set_rtt(rtt_ms, healed.dir)
                say_to(cat, b"warm\n")
                cat.stdout.readline()
                started = time.monotonic()
                say_to(cat, b"ping\n")
                cat.stdout.readline()
                spent_ms = (time.monotonic() - started) * 1000
                assert spent_ms >= rtt_ms
                assert spent_ms < rtt_ms + 80
            cat.stdin.close()
            assert cat.wait(timeout=20) == 0
        finally:
            cat.kill()
    assert tk_lab.status(healed.dir).rtt_ms == 100


def test_a_loopback_lab_has_no_link_to_take_down(lab: LabInfo) -> None:
    with pytest.raises(UsageError, match="no link"):
        tk_lab.link_down(lab.dir)
