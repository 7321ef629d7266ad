"""States of kept jobs, as files on the cluster tell them: any text, no exception."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cli.commands.jobs.keep import lines
from tunnelkit.config.schema import ClusterSettings, Settings
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.scheduler.pbs.batch_scripts import PbsBatchScripts
from tunnelkit.scheduler.pbs.torque import Torque
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.scheduler.slurm.batch_scripts import SlurmBatchScripts
from tunnelkit.session.submit.kept import _addressed, _states, change, is_named, look
from tunnelkit.session.submit.login import Login, login_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = "array name node code signal since_s until_s limit_s idle_s gpus cpus attached answered"
STANDING = st.lists(
    st.dictionaries(st.sampled_from(["node", "pid", "rank", "error", "where"]), JSON), max_size=12
)


@given(text=st.text())
def test_any_text_is_read(text: str) -> None:
    _states(text)
    _states(f"tk-kept 1.json {text}")
    SlurmBatchScripts().parse_running(Completed(0, text.encode("utf-8", "replace"), b""))


@given(data=st.dictionaries(st.sampled_from(KEYS.split()), JSON), standing=STANDING | JSON)
def test_any_state_can_be_shown(data: dict[str, object], standing: object) -> None:
    data["standing"] = standing
    ((job, state),) = _states(f"tk-kept 12.json {json.dumps(data)}\n")
    shown = list(lines(state))
    assert job == "12" and shown[0].startswith("job 12")
    assert all(line.isprintable() for line in shown) and len(shown) < 16


def test_a_program_at_its_exception_is_shown_bounded_and_escaped() -> None:
    one = {
        "node": "n\x1b[2J",
        "pid": 7,
        "rank": 1,
        "error": "E: \x1b]0;x\x07" + "a" * 999,
        "where": "f:3",
    }
    state = {"since_s": 1, "until_s": 2, "standing": [one] * 99}
    ((_, found),) = _states(f"tk-kept 12.json {json.dumps(state)}\n")
    shown = list(lines(found))
    assert len(found["standing"]) == 8 and len(found["standing"][0]["error"] or "") == 200
    assert shown[1].startswith("  stands   E: ") and " at f:3 (rank 1, pid 7 on n" in shown[1]
    assert all(line.isprintable() for line in shown)
    assert ", then F5, or let it go" in shown[-1]


def test_pbs_ids_are_files_names() -> None:
    scripts = PbsBatchScripts()
    text = b"tk-job 7.server\ntk-job 8[3].server\ntk-job 9[].server\ntk-job x.y\n"
    assert [one.job_id for one in scripts.parse_running(Completed(0, text, b""))] == ["7", "8-3"]
    assert scripts.wake("8-3")[-1] == "8[3]" and scripts.release("7")[-3:] == ["-s", "TERM", "7"]
    ((job, state),) = _states('tk-kept 8-3.json {"array": "8[3].server"}')
    assert job == "8-3" and is_named(state, "8[3].server") and not is_named(state, "8")
    assert is_named(state, "8[3]") and is_named(state, "8-3")
    assert _addressed(state) == "8-3"


#: What is asked of them here.
SETTINGS = cast(Settings, SimpleNamespace(cluster=ClusterSettings()))


class Cluster:
    """A login host with programs of a scheduler, and the directory of kept jobs."""

    def __init__(self, root: Path, scheduler: type[Slurm | PBS | Torque], **programs: str) -> None:
        self._root = root
        self.kept = root / ".cache/tunnelkit/kept"
        self.kept.mkdir(parents=True, exist_ok=True)
        self._bin = root / scheduler.__name__
        self._bin.mkdir()
        for name, text in programs.items():
            (self._bin / name).write_text(f"#!/bin/sh\n{text}\n")
            (self._bin / name).chmod(0o700)
        self._scheduler: Scheduler = scheduler(str(self._bin))

    def keep(self, job: str, until_s: float, **state: str) -> None:
        (self.kept / f"{job}.at").mkdir()
        (self.kept / f"{job}.json").write_text(json.dumps({"until_s": until_s, **state}))

    def look(self) -> list[str]:
        """The jobs that `tk keep` lists."""
        return [one["job"] for one in asyncio.run(look(self._login()))[1]]

    def release(self, job: str) -> None:
        """Let a job go, as `tk keep JOB --release`."""
        asyncio.run(change(self._login(), job, None))

    def files(self) -> list[str]:
        return sorted(file.name for file in self.kept.iterdir())

    def _login(self) -> Login:
        async def run(command: Command) -> Completed:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                env={"HOME": str(self._root), "PATH": "/usr/bin:/bin"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            return Completed(process.returncode or 0, out, err)

        return login_of(run, "login", self._scheduler, SETTINGS)


def test_an_arrays_element_of_openpbs_is_listed_and_its_files_stay(tmp_path: Path) -> None:
    answer = '[ "$1" = -T ] && echo "14[3].login" || echo "14[].login"'
    cluster = Cluster(tmp_path, PBS, qselect=answer)
    cluster.keep("14-3", time.time() + 900, array="14[3].login", cluster="login")
    assert cluster.look() == ["14-3"]
    assert cluster.files() == ["14-3.at", "14-3.json"]


def test_torque_has_no_option_for_elements(tmp_path: Path) -> None:
    answer = '[ "$1" != -T ] || exit 2; echo "14[3].login"'
    cluster = Cluster(tmp_path, Torque, qselect=answer)
    cluster.keep("14-3", time.time() + 900)
    assert cluster.look() == ["14-3"]


def test_files_of_another_clusters_jobs_stay_and_are_not_listed(tmp_path: Path) -> None:
    config = 'echo "ClusterName             = beta"'
    cluster = Cluster(tmp_path, Slurm, squeue="echo 'tk-job 12 12 (null)'", scontrol=config)
    for job in ("12", "4711"):
        cluster.keep(job, time.time() + 900, cluster="alpha")
    assert cluster.look() == []
    assert cluster.files() == ["12.at", "12.json", "4711.at", "4711.json"]


@pytest.mark.parametrize("ago_s, stays", [(200, True), (400, False)])
def test_files_go_once_the_keeper_must_have_ended(
    tmp_path: Path, ago_s: float, stays: bool
) -> None:
    cluster = Cluster(tmp_path, Slurm, squeue=":", scontrol="exit 1")
    cluster.keep("12", time.time() - ago_s)
    assert cluster.look() == []
    assert bool(cluster.files()) is stays


def test_by_the_number_of_an_arrays_last_element_slurm_would_take_all_of_them() -> None:
    told = {"array": "100_3", "node": "n1", "until_s": time.time() + 600, "code": 1}
    ((_, last),) = _states(f"tk-kept 100.json {json.dumps(told)}\n")
    assert _addressed(last) == "100_3"
    assert SlurmBatchScripts().release(_addressed(last))[-1] == "100_3"
    assert any("tk up --attach-job 100_3" in line for line in lines(last))
    ((_, odd),) = _states('tk-kept 100.json {"array": "100_3; reboot"}\n')
    assert _addressed(odd) == "100"


def test_an_arrays_last_element_is_let_go_alone_without_a_file(tmp_path: Path) -> None:
    rows = "tk-job 1003 1000_3 (null)\ntk-job 1000 1000_9 tk: kept until 09:31"
    # It ends by the signal.
    squeue = f"[ -f '{tmp_path}/sent' ] || printf '%s\\n' '{rows}'"
    scancel = f"echo \"$@\" >>'{tmp_path}/sent'"
    cluster = Cluster(tmp_path, Slurm, squeue=squeue, scancel=scancel, scontrol="exit 1")
    assert cluster.look() == ["1000"]
    cluster.release("1000_9")
    assert (tmp_path / "sent").read_text() == "--batch --signal=TERM 1000_9\n"


def test_slurm_s_list_names_elements_of_arrays() -> None:
    text = b"tk-job 1000 1000_9 a b\ntk-job 7 7 \ntk-job 8 8+0 (null)\ntk-cluster alpha\n"
    found = SlurmBatchScripts().parse_running(Completed(0, text, b""))
    assert [(one.job_id, one.array, one.comment) for one in found] == [
        ("1000", "1000_9", "a b"), ("7", "", ""), ("8", "", ""),
    ]  # fmt: skip
    assert "%A %i %k" in " ".join(SlurmBatchScripts().running())
