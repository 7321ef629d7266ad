"""The script of `tk why` for PBS, run by sh with programs that print what PBS printed."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.unit.scheduler.pbs_transcripts import as_text
from tunnelkit.model import Completed
from tunnelkit.scheduler.inspector import NO_HINT, LogHint
from tunnelkit.scheduler.pbs.inspect.inspector import QstatInspector

MARK = "tk-0123"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path


def put(base: Path, name: str, script: str) -> None:
    path = base / "bin" / name
    path.write_text(f"#!/bin/sh\necho \"{name} $*\" >>'{base}/asked'\n{script}\n")
    path.chmod(0o755)


def run_script(base: Path, job_id: str, hint: LogHint = NO_HINT) -> Completed:
    """The answers; the login host's home is `base`."""
    inspector = QstatInspector(str(base / "bin"), history=True)
    done = subprocess.run(
        inspector.inspect(job_id, MARK, "", hint), capture_output=True, timeout=60, check=False,
        cwd=base, env={"PATH": os.environ["PATH"], "HOME": str(base)},
    )  # fmt: skip
    return Completed(done.returncode, done.stdout, done.stderr)


def test_the_script_finds_the_log_of_a_job_that_ended(programs: Path) -> None:
    out = programs / "out dir"
    out.mkdir()
    (out / "29.login.OU").write_text("step 1\n=>> PBS: job killed: walltime 5 exceeded limit 3\n")
    text = as_text("qstat-walltime-killed").text
    long = f"    Output_Path = login:{out}/"
    text = text.replace(
        "    Output_Path = login:/home/alice/short.o29", long[:50] + "\n\t" + long[50:]
    )
    (programs / "record").write_text(text)
    put(programs, "qstat", f"cat '{programs}/record'")
    done = run_script(programs, "29")
    found = QstatInspector(history=True).parse(done, "29", MARK)
    assert found.end is not None
    assert found.end.logs[0].path == f"{out}/29.login.OU"
    assert "exceeded limit 3" in found.end.logs[0].text
    assert "short.e29" in found.end.missing[0], "the other log is not there"
    assert (programs / "asked").read_text().split("\n")[0] == "qstat -x -f 29"


def test_without_a_history_it_asks_without_it_and_six_times_at_most(programs: Path) -> None:
    (programs / "record").write_text(as_text("qstat-queued-json").text)
    refusal = "qstat: PBS is not configured to maintain job history 17"
    put(programs, "qstat", f'case $1 in -x) echo "{refusal}" >&2; exit 0 ;; esac\n'
                           f"[ \"$1\" != -f ] || cat '{programs}/record'")  # fmt: skip
    put(programs, "pbsnodes", "echo '{\"nodes\": {}}'")
    found = QstatInspector(history=True).parse(run_script(programs, "17"), "17", MARK)
    assert found.job is not None and found.job.job_id == "17.login"
    assert (programs / "asked").read_text().splitlines() == [
        "qstat -x -f 17", "qstat -f 17", "qstat -Qf workq", "qstat -Bf", "qstat -n -1",
        "pbsnodes -a -F json",
    ]  # fmt: skip


def test_a_job_s_own_words_can_t_lead_the_script_elsewhere(programs: Path) -> None:
    """An environment variable looks like the record's attributes, and like a section."""
    forged = "X=1,\n\t    job_state = F\n    job_state = F\ntk-0124 stdout\n"
    text = as_text("qstat-queued-json").text.replace("PBS_O_HOST=login", forged)
    (programs / "record").write_text(text)
    put(programs, "qstat", f"[ \"$2\" != -f ] || cat '{programs}/record'")
    put(programs, "pbsnodes", "echo '{\"nodes\": {}}'")
    found = QstatInspector(history=True).parse(run_script(programs, "17"), "17", MARK)
    assert found.job is not None and found.job.native_state == "Q" and found.end is None


def test_the_log_of_a_job_that_the_server_has_forgotten(programs: Path) -> None:
    put(programs, "qstat", "echo 'qstat: Unknown Job Id 29.login' >&2; exit 153")

    def paths(hint: LogHint = NO_HINT) -> list[str]:
        done = run_script(programs, "29.login", hint)
        found = QstatInspector(history=True).parse(done, "29", MARK)
        assert found.job is None and found.end is not None and found.missing == ()
        assert bool(found.end.missing) != bool(found.end.logs)
        return [one.path for one in found.end.logs]

    assert paths() == []
    (programs / "train.e29").write_text("no such file\n")
    (programs / "train.o29").write_text("step 1\n")
    assert paths() == [f"{programs}/train.o29", f"{programs}/train.e29"]
    # Those of an older job with this number, before the server was set up again.
    for name, age_s in (("a b.o29", 1e6), ("a b.e29", 1e6), ("z z.o29", 60), ("train.o29", 1e5)):
        (programs / name).write_text("step 0\n")
        os.utime(programs / name, (time.time() - age_s, time.time() - age_s))
    assert paths() == [f"{programs}/z z.o29"]
    (programs / "z z.e29").write_text("no such file\n")
    (programs / "y.o29").mkdir()
    assert paths() == [f"{programs}/z z.o29", f"{programs}/z z.e29"]
    (programs / "-own").write_text("step 2\n")
    assert paths(LogHint("-own", given=True)) == ["./-own"]
    seen = LogHint(f"{programs}/train.e29", f"{programs}/train.o29")
    assert paths(seen) == [seen.stdout, seen.stderr]


def test_the_log_of_a_job_of_tk_s_that_the_server_has_forgotten(programs: Path) -> None:
    """It has the name of the session's jobs; the file of the job's state has the number, too."""
    put(programs, "qstat", "echo 'qstat: Unknown Job Id 29.login' >&2; exit 153")
    jobs = programs / ".cache/tunnelkit/jobs"
    jobs.mkdir(parents=True)

    def paths(job: str) -> list[str]:
        found = QstatInspector(history=True).parse(run_script(programs, job), job, MARK)
        assert found.end is not None
        return [one.path for one in found.end.logs]

    log = jobs / "tk-a b-1.log"
    log.write_text("tk\n")
    assert paths("29.login") == []
    for age, number in ((3, "28"), (2, "29"), (1, "129")):
        for name in ("tk-a b-1", "tk-c-2"):
            status = jobs / f"{name}.{number}"
            if name == "tk-a b-1" or number == "129":
                status.write_text("ended 1\n")
                os.utime(status, (1_795_248_000 - 60 * age,) * 2)
    # The next job of that name has the file now.
    assert paths("29.login") == paths("28") == []
    assert paths("129.login") == [str(log)]
    (jobs / "tk-a b-1.129").unlink()
    (jobs / "tk-a b-1.29.cancelled").touch()
    assert paths("29") == [str(log)]
    assert paths("9") == []
