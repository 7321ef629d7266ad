"""The place of a job's log: by a PBS server's record, by Slurm's accounting, and as it changes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.scheduler.pbs_transcripts import as_text
from tests.unit.session.logs.local_cluster import LocalLink
from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.scheduler.slurm.inspect.accounting import SEPARATOR
from tunnelkit.session.job.log_paths import (
    LogPaths,
    log_paths_file,
    recall_log_paths,
    remember_log_paths,
)
from tunnelkit.session.logs.cluster import LogCluster
from tunnelkit.session.logs.place import LogPlaceInfo, WantedLog, find_log
from tunnelkit.session.logs.read_log import LogRequest, read_log

QUEUED = "qstat-queued-json"


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))


@dataclass
class Server:
    """A PBS server that answers with one record. logs: what the script has read, by its name."""

    record: str
    logs: dict[str, str] = field(default_factory=dict)

    async def run(self, command: Command) -> Completed:
        """Answer the poller's qstat, or the inspector's script."""
        if command.argv[0] != "sh":
            return Completed(0, self.record.encode(), b"")
        mark = command.argv[4]
        sections = {"now": "1795248300", "job": self.record, **self.logs}
        text = "".join(f"\n{mark} {one}\n{sections[one]}\n{mark}-code 0\n" for one in sections)
        return Completed(0, text.encode(), b"")

    def cluster(self) -> LogCluster:
        """Return the cluster whose login host is this machine."""
        return LocalLink().cluster(PBS(), self.run)


def _remembered() -> str:
    return log_paths_file().read_text() if log_paths_file().exists() else ""


async def test_an_element_that_waits_has_the_path_that_it_will_have() -> None:
    server = Server(as_text("qstat-array-json").text)
    waits = await find_log(server.cluster(), WantedLog("27[3]"))
    assert (waits["state"], waits["path"]) == ("pending", "/home/alice/arr.o27.3")
    assert waits["stderr_path"] == "/home/alice/arr.e27.3"
    runs = await find_log(server.cluster(), WantedLog("27[0]"))
    assert (runs["state"], runs["path"]) == ("running", "/home/alice/arr.o27.0")
    assert "array_index" not in _remembered()


async def test_an_array_as_a_whole_has_no_log() -> None:
    server = Server(as_text("qstat-array-json").text)
    with pytest.raises(SchedulerError, match="no log of its own") as caught:
        await find_log(server.cluster(), WantedLog("27[]"))
    assert "name one element" in caught.value.one_line()
    assert _remembered() == ""


FORGOTTEN = "qstat: Unknown Job Id 17.login"


async def test_a_forgotten_job_is_known_by_its_number_or_its_whole_id() -> None:
    server = Server(as_text(QUEUED).text)
    seen = await find_log(server.cluster(), WantedLog("17.login"))
    server.record, server.logs = FORGOTTEN, {"stdout": "/home/alice/other.o17|1|1795248200\nx"}
    for job in ("17", "17.login", "17.login.example.org"):
        place = await find_log(server.cluster(), WantedLog(job))
        assert (place["path"], place["known_from"]) == (seen["path"], "tk")
        assert place["stderr_path"] == seen["stderr_path"] and place["state"] == "ended"


def test_what_was_written_down_with_a_server_s_name_is_found_by_the_number() -> None:
    remember_log_paths("login.example.org", "5.srv", LogPaths("/h/5.out", "", 1.0))
    for job in ("5", "5.srv", "5.srv.example.org"):
        assert recall_log_paths("login.example.org", job) == LogPaths("/h/5.out", "", 1.0)
    assert recall_log_paths("login.example.org", "5[1]") is None
    assert recall_log_paths("login.example", "5") is None
    # Of another server's job nothing is known; with both, the bare number says too little.
    assert recall_log_paths("login.example.org", "5.other") is None
    remember_log_paths("login.example.org", "5.other", LogPaths("/h/other.out", "", 1.0))
    assert recall_log_paths("login.example.org", "5.other") == LogPaths("/h/other.out", "", 1.0)
    assert recall_log_paths("login.example.org", "5") is None


async def test_of_a_forgotten_job_a_file_by_its_number_is_the_log() -> None:
    logs = {
        "stdout": "/home/alice/train.o17|5|1795248200\nstep\n",
        "stderr": "/home/alice/t.e17|0|1\n",
    }
    server = Server(FORGOTTEN, logs)
    place = await find_log(server.cluster(), WantedLog("17"))
    assert (place["path"], place["stderr_path"]) == ("/home/alice/train.o17", "/home/alice/t.e17")
    assert (place["state"], place["known_from"]) == ("ended", "files")
    assert place["written_s"] == 1795248200.0
    assert _remembered() == ""


async def test_a_forgotten_job_without_a_log_is_said_to_be_one() -> None:
    with pytest.raises(SchedulerError, match="where job 17 wrote its log is not known") as caught:
        await find_log(Server(FORGOTTEN).cluster(), WantedLog("17"))
    line = caught.value.one_line()
    assert "pbs has forgotten it or never had it" in line and "slurm" not in line.lower()
    assert "NAME.o17" in line and "tk logs 17 --file FILE" in line and "tk why 17" in line


async def test_a_directory_has_the_log_by_pbs_s_name() -> None:
    text = as_text(QUEUED).text
    server = Server(text.replace("/home/alice/waits.o17", "/out/").replace("waits.e17", "logs"))
    place = await find_log(server.cluster(), WantedLog("17"))
    assert (place["path"], place["stderr_path"]) == ("/out/17.login.OU", "/home/alice/logs")
    assert "/out/17.login.OU" in _remembered()
    err = await find_log(server.cluster(), WantedLog("17", err=True))
    assert (err["path"], err["name_in_directory"]) == ("/home/alice/logs", "17.login.ER")


async def test_a_log_that_is_missing_is_asked_for_again_once_the_job_runs(tmp_path: Path) -> None:
    text = as_text(QUEUED).text
    text = text.replace("/home/alice/waits.o17", f"{tmp_path}/first")
    server = Server(text)
    running = text.replace("job_state = Q", "job_state = R").replace("/first", "/second")
    (tmp_path / "second").write_text("step 1\n")
    data, said = b"", []
    request = LogRequest(WantedLog("17"), follow=True)
    async with asyncio.timeout(60), aclosing(read_log(server.cluster(), request)) as events:
        async for event in events:
            if isinstance(event, bytes):
                data += event
                server.record = running.replace("job_state = R", "job_state = F")
            elif isinstance(event, str):
                said.append(event)
                server.record = running
    assert data == b"step 1\n"
    assert said == [f"waiting for {tmp_path}/first: it is not there yet"]


@dataclass
class Accounting:
    """Slurm that has forgotten a job, with the accounting's rows. logs: section -> its text."""

    steps: tuple[str, ...]
    logs: dict[str, str] = field(default_factory=dict)

    async def run(self, command: Command) -> Completed:
        """Answer the inspector's script."""
        mark = command.argv[4]
        row = "ended,FAILED,1:0,1795248000,1795248000,1795248200,,1,00:01,60,,n1,me,p,a,q,/h"
        names = ["77", *(f"77.{step}" for step in self.steps)]
        rows = "\n".join(SEPARATOR.join([name, *row.split(",")]) for name in names)
        gone = ("slurm_load_jobs error: Invalid job id specified", 1)
        sections = {"now": ("1795248300", 0), "job": gone, "steps": (rows, 0)}
        sections |= {name: (text, 0) for name, text in self.logs.items()}
        text = "".join(
            f"\n{mark} {name}\n{body}\n{mark}-code {code}\n"
            for name, (body, code) in sections.items()
        )
        return Completed(0, text.encode(), b"")

    async def find(self, own: str | None = None, *, err: bool = False) -> LogPlaceInfo:
        """Return where the log of the job is."""
        cluster = LocalLink().cluster(run=self.run)
        return await find_log(cluster, WantedLog("77", err, lambda job_id: own))


LOGS = {name: f"/h/77.{name[4:]}\ntk-file 5 1795248200\nstep\n" for name in ("log-out", "log-err")}


async def test_a_job_that_only_the_accounting_knows_has_the_log_that_was_found() -> None:
    place = await Accounting(("batch",), LOGS).find("/h/own.log")
    assert (place["path"], place["stderr_path"]) == ("/h/77.out", "/h/77.err")
    assert (place["state"], place["known_from"]) == ("ended", "scheduler")
    assert (await Accounting(("batch",), LOGS).find(err=True))["path"] == "/h/77.err"


async def test_of_a_job_of_the_accounting_the_path_that_tk_saw_comes_first() -> None:
    remember_log_paths("login", "77", LogPaths("/h/seen.out", "", 1795248100.0))
    for logs in (LOGS, {}):
        place = await Accounting(("batch",), logs).find()
        assert (place["path"], place["known_from"]) == ("/h/seen.out", "tk")


async def test_of_a_job_of_the_accounting_the_session_s_own_path_is_the_last() -> None:
    place = await Accounting(("batch",)).find("/h/own.log")
    assert (place["path"], place["known_from"]) == ("/h/own.log", "tk")


async def test_a_job_of_the_accounting_without_any_path() -> None:
    with pytest.raises(SchedulerError, match="where job 77 wrote its log is not known") as caught:
        await Accounting(("batch", "0")).find()
    assert "tk logs 77 --file FILE" in caught.value.one_line()
    # salloc's have no step for a script.
    with pytest.raises(SchedulerError, match="no log of its own"):
        await Accounting(("extern", "0")).find()
