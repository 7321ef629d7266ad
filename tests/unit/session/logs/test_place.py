"""The place of a PBS job's log, by a real server's record, and a log whose place changes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.scheduler.pbs_transcripts import as_text
from tests.unit.session.logs.local_cluster import LocalLink
from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.session.job.log_paths import log_paths_file
from tunnelkit.session.logs.cluster import LogCluster
from tunnelkit.session.logs.place import WantedLog, find_log
from tunnelkit.session.logs.read_log import LogRequest, read_log

QUEUED = "qstat-queued-json"


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))


@dataclass
class Server:
    """A PBS server that answers with one record."""

    record: str

    async def run(self, command: Command) -> Completed:
        """Answer the poller's qstat, or the inspector's script."""
        if command.argv[0] != "sh":
            return Completed(0, self.record.encode(), b"")
        mark = command.argv[4]
        sections = {"now": "1795248300", "job": self.record}
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
