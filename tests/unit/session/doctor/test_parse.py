"""What the doctor reads of programs' output; whatever they print, nothing is raised."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.model import Completed
from tunnelkit.session.doctor import parse
from tunnelkit.session.runtime import completion_cache

lines = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.from_regex(r"tk-[a-z]{1,8} [ -~]{0,40}", fullmatch=True),
        st.from_regex(r"[/a-z0-9:]{1,20}( +[0-9]{1,12}\*?){0,6}( [0-9]{1,3}%)?( /[a-z]{0,8})?"),
    ),
    max_size=8,
).map("\n".join)


@given(lines)
def test_nothing_is_raised(text: str) -> None:
    parse.ssh_version(text)
    parse.df(text)
    for quota in parse.quotas(text):
        assert quota.limit_bytes > 0 and quota.used_part >= 0
    parse.pythons(text)
    found = parse.clock(text, 1e9, 1e9 + 1)
    assert found is None or math.isfinite(found.ahead_s)
    assert "\n" not in parse.noise(text, "mark") and len(parse.shorten(text)) <= 60
    parse.tagged(text, "tk-df")
    told = completion_cache.parse(Completed(0, text.encode("utf-8", "replace"), b""))
    assert len(told.nodes) <= completion_cache.MAX_NAMES


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL 3.0.19", (9, 2)),
        ("OpenSSH_10.0p2, LibreSSL 3.3.6", (10, 0)),
        ("OpenSSH_for_Windows_8.1p1, LibreSSL 3.0.2", (8, 1)),
        ("Dropbear v2022.83", None),
        ("", None),
    ],
)
def test_ssh_version(text: str, version: tuple[int, int] | None) -> None:
    assert parse.ssh_version(text) == version


@given(
    st.text("abc:/-.", min_size=1, max_size=12),
    st.integers(1, 10**12),
    st.integers(0, 10**12),
    st.text("abc/ -", max_size=12),
)
def test_df_reads_what_df_writes(device: str, total: int, free: int, mount: str) -> None:
    text = (
        "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
        f"{device}   {total}  {total}   {free}   3% /{mount}\n"
    )
    space = parse.df(text)
    assert space is not None
    assert (space.total_bytes, space.free_bytes) == (total * 1024, free * 1024)
    assert space.mountpoint == f"/{mount}".rstrip()


def test_df_of_a_full_file_system_may_be_below_zero() -> None:
    space = parse.df("x 100 120 -20 100% /home\n")
    assert space is not None and space.free_bytes == 0


QUOTA = """\
Disk quotas for user me (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
nfs1:/export/home  51200*  50000   60000   6days    1000       0       0
nfs1:/export/work   1000       0       0            1000       0       0
"""
WRAPPED = """\
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
nfs1.cluster.example.org:/export/home
                  40000   50000   60000            1000       0       0
"""


def test_quota() -> None:
    (home,) = parse.quotas(QUOTA)
    assert home == parse.Quota("nfs1:/export/home", 51200 * 1024, 60000 * 1024)
    (home,) = parse.quotas(WRAPPED)
    assert home.filesystem.endswith(":/export/home") and home.used_part == pytest.approx(2 / 3)
    (lustre,) = parse.quotas("/lustre 1234 0 5000 - 10 0 100 -\n")
    assert lustre.limit_bytes == 5000 * 1024
    assert parse.quotas("Disk quotas for user me (uid 1000): none\n") == []


def test_pythons_each_once_in_their_order() -> None:
    text = "banner\ntk-python 3.6.8 /usr/bin/python3\ntk-python 3.11.2 /opt/py thon\n" * 2
    first, second = parse.pythons(text)
    assert first.version == (3, 6, 8) and second.path == "/opt/py thon"
    assert second.text == "3.11.2"


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e9, 2e9),
    st.floats(0, 30),
    st.floats(0, 1),
    st.booleans(),
)
def test_the_clocks_truth_is_within_what_is_told(
    ahead: float, begin: float, took: float, asked_at: float, fraction: bool
) -> None:
    far = begin + took * asked_at + ahead
    text = f"tk-date {far:.9f}" if fraction else f"tk-date {math.floor(far)}.%N"
    found = parse.clock(text, begin, begin + took)
    assert found is not None
    assert abs(found.ahead_s - ahead) <= found.uncertain_s + 1e-6
    assert found.surely_off_s <= abs(ahead) + 1e-6


def test_noise() -> None:
    assert parse.noise("mark\n", "mark") == ""
    assert parse.noise("Welcome!\r\n\nmark\nbye\n", "mark") == "Welcome! bye"


def test_kinds_of_file_systems() -> None:
    assert parse.is_network("nfs\n") and parse.is_network("lustre")
    assert not parse.is_network("ext2/ext3") and not parse.is_network("")


# -- names for completion ------------------------------------------------------


def answer(text: str, code: int = 0) -> completion_cache.ClusterNames:
    return completion_cache.parse(Completed(code, text.encode(), b""))


def test_slurms_names() -> None:
    told = answer(
        "Welcome to the cluster\ntk-nodes gpu node[01-03],big1\ntk-nodes short node01\n"
        "tk-job 4711\ntk-job 12_3\ntk-code 0\n"
    )
    assert told.nodes == ("node01", "node02", "node03", "big1")
    assert told.partitions == ("gpu", "short")
    assert told.jobs == ("4711", "12_3") and told.problem is None


def test_names_of_pbs() -> None:
    told = answer(
        "tk-node node1\n     Mom = node1\n     state = free\n\ntk-node node2\n"
        "tk-queue Queue              Max   Tot\ntk-queue ---------------- ----- -----\n"
        "tk-queue gpuq                 0     1\ntk-job 12.pbs\ntk-code 0\n"
    )
    assert told.nodes == ("node1", "node2")
    assert told.partitions == ("gpuq",) and told.jobs == ("12.pbs",)


def test_a_scheduler_that_does_not_answer() -> None:
    told = answer("slurm_load_partitions: Unable to contact slurm controller\ntk-code 1\n")
    assert told.problem == "slurm_load_partitions: Unable to contact slurm controller"
    assert told.nodes == ()
    assert answer("", 255).problem == "exit status 255"


def test_names_that_a_shell_would_read_are_not_offered() -> None:
    assert answer("tk-node $(reboot)\ntk-node -x\ntk-node ok\ntk-code 0\n").nodes == ("ok",)


def test_the_cache_of_names(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "names.json"
    assert completion_cache.recall("nodes", tmp_path, path=path) == []
    for number in range(completion_cache.MAX_PROJECTS + 5):
        told = completion_cache.ClusterNames(nodes=(f"n{number % 2}",), partitions=("p",))
        completion_cache.remember(f"login{number % 2}", Path(f"/p{number}"), told, path=path)
    completion_cache.remember(
        "login0", Path("/p1"), completion_cache.ClusterNames(problem="down"), path=path
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert completion_cache.recall("nodes", Path("/p200"), path=path) == ["n0"]
    assert completion_cache.recall("nodes", Path("/p203"), path=path) == ["n1"]
    # Of a project that is not known: everything.
    assert completion_cache.recall("nodes", Path("/p1"), path=path) == ["n0", "n1"]
    assert completion_cache.recall("partitions", None, path=path) == ["p"]
    assert len(json.loads(path.read_text())["projects"]) == completion_cache.MAX_PROJECTS
    assert [one.name for one in path.parent.iterdir()] == ["names.json"]


@given(st.text(max_size=40))
def test_a_broken_cache_is_none(text: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        assert completion_cache.recall("nodes", None, path=Path(file.name)) == []
