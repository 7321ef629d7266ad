"""A login host whose answers hold what a shell, ssh, VS Code, a configuration parser or `format`
would expand: they stay text, or are refused."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import suppress

import pytest

from tests.support.login_rig import LoginHost
from tests.support.scheduler_rig import Programs
from tests.support.scheduler_rig import host as host
from tests.support.scheduler_rig import programs as programs
from tests.support.scheduler_rig import project as project
from tests.support.tkrig import Project
from tunnelkit.cli.completion import sources
from tunnelkit.errors import SchedulerError, TunnelkitError
from tunnelkit.model import Completed
from tunnelkit.scheduler.nodelist import expand
from tunnelkit.scheduler.pbs.parse import nodes_of
from tunnelkit.scheduler.slurm.adapter import Slurm

EVIL = ["a$(id)", "a`id`", "${HOME}", "$HOME", "%h", "%(x)s", "{0}", "a'b", "-oProxyCommand=id",
        "a;id", "a|id", "../x", "~root", "a\\b", "a*", "!1", "a&b", "\x1b[2J"]  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")


@pytest.mark.parametrize("name", EVIL)
def test_a_node_s_name_holds_nothing_that_is_expanded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in (name, f"good,{name}", f"good[1-2],{name}[1-2]"):
        with pytest.raises(SchedulerError):
            expand(text)
    with suppress(TunnelkitError):
        assert all(map(_PLAIN.fullmatch, nodes_of(f"good/0+{name}/1")))
    row = f"7|RUNNING|None|good,{name}|good|N/A|N/A|1:00|7|p|tk"
    with suppress(SchedulerError):
        (job,) = Slurm().parse_query(Completed(0, row.encode(), b""), ["7"]).values()
        assert all(map(_PLAIN.fullmatch, job.nodes))
    # What TAB offers stands in the shell's line as it is.
    status = {"job": {"nodes": ["good", name]}}
    monkeypatch.setattr(sources, "_status", lambda: status)
    assert sources.own_nodes("") == ["good"]


#: The home there, and with it each place of tk's and of the project on the cluster.
HOME = "h $(touch it-ran)`touch it-ran`';touch it-ran;'${HOME}$HOME%(x)s%h{0}*"


async def test_a_home_that_every_language_would_expand(
    project: Project, programs: Programs, host: LoginHost
) -> None:
    home = host.home / HOME
    home.mkdir(mode=0o700)
    # The first program of each of tk's commands there.
    for name in ("sh", "bash"):
        real = f"/bin/{name}"
        script = f'#!/bin/dash\nHOME={shlex.quote(str(home))}\nexport HOME\nexec {real} "$@"\n'
        path = programs.directory / name
        path.write_text(script)
        path.chmod(0o755)
    up = await project.tk("up", "node1")
    assert (home / "tk").is_dir(), up
    for words in (["sync", "--wait"], ["status"], ["doctor"], ["vscode"], ["run", "true"],
                  ["simulate", "--only-check", "--", "true"], ["why"], ["down"]):  # fmt: skip
        await project.tk(*words, code=None)
    launch = project.dir / ".vscode" / "launch.json"
    if launch.exists():
        for one in json.loads(launch.read_text())["configurations"]:
            assert all("${" not in row["remoteRoot"] for row in one["pathMappings"])
    for place in (project.base, host.home, project.lab.home):
        assert not list(place.rglob("it-ran")), up
