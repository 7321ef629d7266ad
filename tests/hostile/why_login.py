"""A login host for `tk why` that is this computer, with programs of a scheduler that lie."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tunnelkit.model import Completed
from tunnelkit.scheduler.inspector import Inspection, JobInspector, LogHint
from tunnelkit.scheduler.pbs.inspect.inspector import QstatInspector
from tunnelkit.scheduler.slurm.inspect.inspector import SlurmInspector

MARK = "tk-0123456789abcdef"
_SLURM = (
    "JobId=4711 JobName=x UserId=me(1000) Priority=1 JobState={state} Reason=NonZeroExitCode "
    "Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=1:0 RunTime=00:00:09 "
    "TimeLimit=00:30:00 SubmitTime=1795635000 StartTime=1795635001 EndTime=1795635010 "
    "Partition=cpu NodeList=n1 NumNodes=1 NumCPUs=1 Command=/x WorkDir={home} StdErr={log} "
    "StdIn=/dev/null StdOut={log}"
)
_PBS = """\
Job Id: 4711.login
    Job_Name = x
    Job_Owner = me@login
    job_state = {state}
    queue = workq
    Error_Path = login:{log}
    Join_Path = oe
    Output_Path = login:{log}
    exec_host = n1/0
    Resource_List.walltime = 00:30:00
    stime = Thu Nov 26 10:00:01 2026
    Exit_status = 1

"""
_STATES = {"slurm": ("FAILED", "RUNNING"), "pbs": ("F", "R")}


@dataclass
class WhyLogin:
    """job: its id. asked: the programs that the inspector asks. programs: what each one does."""

    kind: str
    home: Path
    inspector: JobInspector
    job: str
    asked: tuple[str, ...]
    programs: dict[str, str] = field(default_factory=dict)

    def program(self, name: str, body: str) -> None:
        """Have a program do this from now on."""
        self.programs[name] = body
        path = self.home / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def logs_to(self, path: str, state: str = "ended") -> None:
        """Have the job's log be there."""
        form, asks = (_SLURM, "scontrol") if self.kind == "slurm" else (_PBS, "qstat")
        name = _STATES[self.kind][state == "running"]
        (self.home / "record").write_text(form.format(state=name, log=path, home=self.home))
        self.program(asks, f"cat '{self.home}/record'")

    def ask(self, hint: LogHint) -> Inspection:
        """Run the script here."""
        argv = self.inspector.inspect(self.job, MARK, f"{self.home}/.tk", hint)
        environ = {"PATH": f"{self.home}/bin:{os.environ['PATH']}", "HOME": str(self.home)}
        done = subprocess.run(
            argv, capture_output=True, stdin=subprocess.DEVNULL, cwd=self.home, env=environ,
            timeout=60, check=False,
        )  # fmt: skip
        assert len(done.stdout) < 8 << 20, "no answer is that long"
        return self.inspector.parse(
            Completed(done.returncode, done.stdout, done.stderr), self.job, MARK
        )


def slurm_login(home: Path) -> WhyLogin:
    """A Slurm whose accounting says nothing."""
    (home / "bin").mkdir()
    inspector = SlurmInspector(str(home / "bin"))
    made = WhyLogin("slurm", home, inspector, "4711", ("scontrol", "sacct"))
    made.program("sacct", "exit 1")
    made.logs_to("")
    return made


def pbs_login(home: Path) -> WhyLogin:
    """A PBS with a history."""
    (home / "bin").mkdir()
    inspector = QstatInspector(str(home / "bin"), history=True)
    made = WhyLogin("pbs", home, inspector, "4711.login", ("qstat",))
    made.logs_to("")
    return made
