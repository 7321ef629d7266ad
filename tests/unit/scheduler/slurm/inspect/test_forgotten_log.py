"""The log of a job that Slurm has forgotten: as the user names it, as tk saw it, as sbatch was
asked for it. The real script, with programs that print what Slurm printed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tunnelkit.model import Completed
from tunnelkit.scheduler.inspector import NO_HINT, Inspection, LogHint
from tunnelkit.scheduler.slurm.inspect.accounting import FIELDS, SEPARATOR
from tunnelkit.scheduler.slurm.inspect.inspector import SlurmInspector
from tunnelkit.session.why.diagnose import judge

MARK = "tk-0123"
TRACEBACK = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
KeyError: 'label'
"""
VALUES = {"JobName": "train", "State": "FAILED", "ExitCode": "1:0", "Submit": "1795635000",
          "Start": "1795635001", "End": "1795635100", "User": "u"}  # fmt: skip


class Cluster:
    """Programs of Slurm that know nothing of the job but its row in the accounting."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.work = base / "work dir"
        self.work.mkdir()
        (base / "bin").mkdir()
        self.put("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
        self.put("sacct", "exit 1")

    def put(self, name: str, script: str) -> None:
        path = self.base / "bin" / name
        path.write_text(f"#!/bin/sh\necho \"{name} $*\" >>'{self.base}/asked'\n{script}\n")
        path.chmod(0o755)

    def accounts(self, line: str, *, job: str = "4711", script: str = "") -> None:
        """The accounting has this row, and the line that submitted the job."""
        row = {**VALUES, "JobID": job, "WorkDir": str(self.work)}
        text = SEPARATOR.join(row.get(one, "") for one in FIELDS.split(","))
        for name, said in (("row", text), ("line", line), ("script", script)):
            (self.base / name).write_text(said + "\n")
        self.put(
            "sacct",
            f"""\
case "$*" in *SubmitLine*) cat '{self.base}/line' ;; *-B*) cat '{self.base}/script' ;;
*) cat '{self.base}/row' ;; esac""",
        )

    def ask(self, hint: LogHint = NO_HINT, job: str = "4711") -> Inspection:
        inspector = SlurmInspector(str(self.base / "bin"))
        done = subprocess.run(
            inspector.inspect(job, MARK, "", hint), capture_output=True, timeout=60, check=False,
            cwd=self.base, env={"PATH": os.environ["PATH"], "HOME": str(self.base)},
        )  # fmt: skip
        return inspector.parse(Completed(done.returncode, done.stdout, done.stderr), job, MARK)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def path_of(found: Inspection) -> str:
    assert found.end is not None
    return found.end.logs[0].path if found.end.logs else ""


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("sbatch -o out/%j.log train.sh", "{work}/out/4711.log"),
        ("sbatch --time 5 --output=/x/%x-%A_%%.log train.sh -o wrong", "/x/train-4711_%.log"),
        ("sbatch -oa.log --wrap x", "{work}/a.log"),
        ("sbatch --output a.log", "{work}/a.log"),
        ("sbatch -n 2 train.sh -o wrong", ""),
        ("sbatch --parsable train.sh -o wrong", ""),
        ("sbatch --wrap=python a.py -o wrong", ""),
        ("sbatch -o %N.log train.sh", ""),
        ("sbatch -o %8j.log train.sh", ""),
        ("sbatch train.sh", ""),
    ],
)
def test_the_path_that_sbatch_was_asked_for(cluster: Cluster, line: str, path: str) -> None:
    cluster.accounts(line)
    assert path_of(cluster.ask()) == path.format(work=cluster.work)


def test_the_command_line_wins_over_the_script(cluster: Cluster) -> None:
    script = "#!/bin/bash\n#SBATCH -o script.log\n#SBATCH -e %x.err\necho -o no.log"
    cluster.accounts("sbatch train.sh", script=script)
    found = cluster.ask()
    assert found.end is not None
    assert [one.path for one in found.end.logs] == [
        f"{cluster.work}/script.log", f"{cluster.work}/train.err",
    ]  # fmt: skip
    cluster.accounts("sbatch -o line.log train.sh", script=script)
    assert path_of(cluster.ask()) == f"{cluster.work}/line.log"


def test_an_element_of_an_array(cluster: Cluster) -> None:
    cluster.accounts("sbatch -a 1-9 -o %A_%a.log train.sh", job="4711_3")
    assert path_of(cluster.ask(job="4711_3")) == f"{cluster.work}/4711_3.log"
    cluster.accounts("sbatch -a 1-9 -o %j.log train.sh", job="4711_3")
    assert path_of(cluster.ask(job="4711_3")) == "", "an element's own number is not on record"


def test_what_tk_saw_needs_no_accounting_and_the_users_word_wins(cluster: Cluster) -> None:
    (cluster.base / "seen.log").write_text("epoch 1\n")
    (cluster.base / "-given.log").write_text(f"epoch 1\n{TRACEBACK}")
    seen = LogHint(str(cluster.base / "seen.log"))
    assert path_of(cluster.ask(seen)) == seen.stdout
    [verdict] = judge(cluster.ask(seen), "4711").verdicts
    assert (verdict.code, verdict.certainty.value) == ("no-record", "unknown")
    found = cluster.ask(LogHint("-given.log", given=True))
    assert path_of(found) == "./-given.log", "below the home, and no option of tail"
    [verdict] = judge(found, "4711").verdicts
    assert (verdict.code, verdict.certainty.value) == ("exception", "likely")
    assert verdict.sentence == "failed: KeyError: 'label' at train.py:88 in collate"


def test_it_asks_when_a_log_was_made(cluster: Cluster) -> None:
    cluster.accounts("sbatch -o a.log train.sh")
    log = cluster.work / "a.log"
    log.write_text(TRACEBACK)
    found = cluster.ask().end
    asked = subprocess.run(["stat", "-c", "%W", log], capture_output=True, text=True, check=True)
    known = float(asked.stdout) if asked.stdout.strip().isdecimal() else None
    assert found is not None and found.logs[0].born_s == (known or None)


def test_quotas_are_asked_for_where_a_log_names_one(cluster: Cluster) -> None:
    full = "quota: x\n     /dev/x  100*  100  100  6days  7  0  0\n"
    (cluster.base / "quota.txt").write_text(f"Disk quotas for user me (uid 7):\n{full}")
    cluster.put("quota", f"cat '{cluster.base}/quota.txt'")
    log = cluster.base / "a.log"
    for text, known in ((TRACEBACK, 0), ("cp: error writing 'x': Disk quota exceeded\n", 2)):
        log.write_text(text)
        found = cluster.ask(LogHint(str(log), given=True))
        assert found.end is not None and len(found.end.quotas) == known
        assert found.end.rooms[0].path == str(cluster.base)
    assert found.end.quotas[0].filesystem == "/dev/x"


def test_it_asks_slurm_six_times_at_most(cluster: Cluster) -> None:
    cluster.accounts("sbatch -o a.log train.sh")
    cluster.ask()
    assert len((cluster.base / "asked").read_text().splitlines()) == 4
