"""OpenPBS on the hosts of a site: server, scheduler and comm on login, a mom on each node."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.openpbs.host import Host
from tests.support.processes import until
from tunnelkit.scheduler.pbs.parse import parse_full

#: What a node's users don't have of OpenPBS.
_NOT_ON_NODES = ("qsub", "qstat", "qdel", "qselect", "qmgr", "pbsnodes")
_SIZE = {"node1": {"ncpus": 4, "ngpus": 2}, "node2": {"ncpus": 2, "ngpus": 0}}


def exec_dir() -> Path:
    """Where OpenPBS is installed (`TK_OPENPBS`, else /opt/pbs); perhaps it is not."""
    return Path(os.environ.get("TK_OPENPBS", "/opt/pbs"))


def files(host: str) -> dict[str, str]:
    """The files that make `host` a part of the PBS complex."""
    server = host == "login"
    start = "".join(f"PBS_START_{name}={int(server)}\n" for name in ("SERVER", "SCHED", "COMM"))
    conf = f"""\
PBS_EXEC={exec_dir()}
PBS_HOME=/var/spool/pbs
PBS_SERVER=login
PBS_CORE_LIMIT=unlimited
PBS_SCP=/usr/bin/scp
PBS_START_MOM={int(not server)}
{start}"""
    # As the package's own file does: on the PATH of login shells only.
    profile = f'[ -x {exec_dir()}/bin/qsub ] && PATH="$PATH:{exec_dir()}/bin"\ntrue\n'
    return {"/etc/pbs.conf": conf, "/etc/profile.d/pbs.sh": profile}


class Pbs:
    """The administrator of the complex."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self._hosts = hosts
        self._login = hosts["login"]
        self._moms = {name: host for name, host in hosts.items() if name in _SIZE}
        self._bin = str(exec_dir() / "bin")

    # -- its life -------------------------------------------------------------

    def start(self) -> None:
        """Start everything on fresh hosts; returns once both nodes are free."""
        self.start_server()
        for name, host in self._moms.items():
            self._init(host, "start")
            # Its own start looks for them.
            host.run("rm", *(f"{self._bin}/{name}" for name in _NOT_ON_NODES))
            host.write(
                "/var/spool/pbs/mom_priv/config",
                "$clienthost login\n$restrict_user_maxsysid 999\n$usecp *:/home /home\n",
            )
            self.qmgr(f"create node {name}")
        self.qmgr(
            "create resource ngpus type=long, flag=nh", "set server flatuid = True",
            "set server scheduler_iteration = 10", "set server job_history_enable = True",
        )  # fmt: skip
        # The scheduler considers what its own file names.
        conf = "/var/spool/pbs/sched_priv/sched_config"
        self._login.run("sed", "-i", 's/^resources: "/resources: "ngpus, /', conf)
        self.restart_scheduler()
        for name, host in self._moms.items():
            host.run("sh", "-c", "kill -HUP $(cat /var/spool/pbs/mom_priv/mom.lock)")
            for what, amount in _SIZE[name].items():
                self.qmgr(f"set node {name} resources_available.{what} = {amount}")
        until(lambda: self.states() == dict.fromkeys(self._moms, "free"), "both nodes free", 60.0)

    def start_server(self) -> None:
        """Start what runs on login: database, server, scheduler, comm."""
        self._init(self._login, "start")
        until(self._answers, "the server answers", 60.0)

    def stop_server(self) -> None:
        """Stop what runs on login; jobs go on."""
        self._login.run(f"{self._bin}/qterm", "-t", "quick", "-s")

    def restart_scheduler(self) -> None:
        self._login.run("sh", "-c", "kill -HUP $(cat /var/spool/pbs/sched_priv/sched.lock)")

    def _init(self, host: Host, what: str) -> None:
        log = host.run("sh", "-c", f"{exec_dir()}/libexec/pbs_init.d {what} 2>&1", timeout_s=120.0)
        assert "rror" not in log, log

    def _answers(self) -> bool:
        argv = ("sh", "-c", f"{self._bin}/qstat -B >/dev/null 2>&1 && echo yes || echo no")
        return self._login.run(*argv) == "yes\n"

    # -- settings -------------------------------------------------------------

    def qmgr(self, *lines: str) -> str:
        """Run these commands of qmgr."""
        return self._login.run(f"{self._bin}/qmgr", stdin="".join(f"{one}\n" for one in lines))

    def states(self) -> dict[str, str]:
        """Each node's state."""
        text = self._login.run("sh", "-c", f"{self._bin}/pbsnodes -a -F json || true")
        nodes: dict[str, Any] = json.loads(text or "{}").get("nodes", {})
        return {name: node["state"] for name, node in nodes.items()}

    # -- jobs -----------------------------------------------------------------

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs that have not ended. As text: its JSON of odd environments is none."""
        records = parse_full(self._login.run(f"{self._bin}/qstat", "-f"))
        told = ("Job_Name", "job_state", "substate")
        return [{"id": one.job_id, **{name: one.get(name) for name in told}} for one in records]

    def unfinished(self) -> list[str]:
        """The jobs that have not ended."""
        return self._login.run(f"{self._bin}/qselect").split()

    def qdel(self, *words: str) -> None:
        """Delete jobs, as root; it does not matter whether they are over."""
        self._login.run("sh", "-c", f'{self._bin}/qdel "$@" || true', "sh", *words)

    def qrerun(self, job: str) -> None:
        """Put a running job back into the queue."""
        self._login.run(f"{self._bin}/qrerun", job)

    @contextmanager
    def without_mom(self, node: str) -> Iterator[None]:
        """PBS's daemon on that node is killed, and started again afterwards."""
        lock = "/var/spool/pbs/mom_priv/mom.lock"
        self._moms[node].run("sh", "-c", f"kill -9 $(cat {lock})")
        try:
            yield
        finally:
            self._moms[node].run(f"{exec_dir()}/sbin/pbs_mom")
            until(lambda: self.states()[node] != "down", f"{node} is back", 60.0)

    def clear(self) -> None:
        """Delete all jobs, and wait for their ends."""
        if jobs := self.unfinished():
            self.qdel("-W", "force", *jobs)
        until(lambda: not self.unfinished(), "the end of all jobs", 60.0)
