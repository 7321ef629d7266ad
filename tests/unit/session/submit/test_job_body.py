"""What `tk submit` sends, run here in the place of Slurm's copy: the script is the same file."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelkit.errors import UsageError
from tunnelkit.keeper.main import Settings
from tunnelkit.scheduler.slurm.batch_scripts import SlurmBatchScripts
from tunnelkit.session.submit.job_body import job_body, keeper_modules

NOT_KEPT = Settings(0.0, 1200.0, 300.0, 1, "/nowhere", "")
#: Bytes that a batch script may hold.
TEXTS = st.binary(max_size=300).map(
    lambda data: b"#!/bin/sh\n" + data.replace(b"\0", b"").replace(b"\r\n", b"\n")
)


def sent(text: bytes, python: str = "python3", known: Settings = NOT_KEPT) -> bytes:
    return job_body(text, SlurmBatchScripts().header(text), known, python)


def run(
    where: Path, body: bytes, *args: bytes, env: dict[bytes, bytes] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run it as slurmstepd does; its file is then what the script was."""
    spool = where / "slurm_script"
    spool.write_bytes(body)
    spool.chmod(0o700)
    return subprocess.run([bytes(spool), *args], env=env, capture_output=True, input=b"in")


@given(text=TEXTS)
def test_the_script_is_at_the_end_as_it_is(text: bytes) -> None:
    body = sent(text)
    assert body.endswith(b" script\n" + text)
    assert body.startswith(b"#!/bin/sh\n")
    assert b"\0" not in body


@settings(max_examples=12, deadline=None)
@given(tail=TEXTS, args=st.lists(st.binary(max_size=20), max_size=3))
@pytest.mark.parametrize("python", ["python3", "none"])
def test_any_script_arrives_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, python: str, tail: bytes, args: list[bytes]
) -> None:
    """With a Python and without one."""
    where = tmp_path_factory.mktemp("spool")
    text = b'#!/bin/sh\ncat "$0"; exit 9\n' + tail
    body = sent(text)
    if python == "none":
        body = body.replace(b"python3", b"nopython3").replace(b"platform-python", b"nopython")
    words = [one.replace(b"\0", b"") for one in args]
    done = run(where, body, *words)
    assert (done.returncode, done.stdout) == (9, text)
    assert (where / "slurm_script").read_bytes() == text


ENDS = [*range(0, 256, 51), -signal.SIGKILL, -signal.SIGTERM, -signal.SIGSEGV, -signal.SIGPIPE]


@pytest.mark.parametrize("end", ENDS)
def test_it_ends_as_the_script_does(tmp_path: Path, end: int) -> None:
    how = f"kill -{-end} $$; sleep 9" if end < 0 else f"exit {end}"
    assert run(tmp_path, sent(f"#!/bin/sh\n{how}\n".encode())).returncode == end


def test_the_environment_is_what_slurm_gave(tmp_path: Path) -> None:
    """Also what no shell takes for a variable, and what Python would add in the C locale."""
    env = {b"PATH": os.environb[b"PATH"], b"A.B": b"\xff\n", b"EMPTY": b"", b"LC_ALL": b"C"}
    done = run(tmp_path, sent(b"#!/bin/sh\ncat /proc/$$/environ\n"), env=env)
    assert dict(one.split(b"=", 1) for one in done.stdout.split(b"\0") if one) == env


def test_stdin_is_the_scripts(tmp_path: Path) -> None:
    assert run(tmp_path, sent(b"#!/bin/sh\ncat\n")).stdout == b"in"


def test_what_cant_be_executed_ends_with_the_number_of_the_error(tmp_path: Path) -> None:
    done = run(tmp_path, sent(b"#!/nowhere/sh\n"))
    assert done.returncode == 2 and b"No such file" in done.stderr


def test_a_keeper_that_cant_be_loaded_stops_no_script(tmp_path: Path) -> None:
    body = sent(b"#!/bin/sh\necho $0; exit 6\n").replace(b"import resource", b"import nothing_such")
    done = run(tmp_path, body)
    assert done.returncode == 6 and b"runs without tk" in done.stderr
    assert done.stdout.endswith(b"/slurm_script\n")


def test_lines_that_a_site_has_added_change_nothing(tmp_path: Path) -> None:
    text = b"#!/bin/sh\ncat $0\n"
    body = sent(text).replace(b"#!/bin/sh\n", b"#!/bin/sh\n# added by the site\n", 1)
    assert run(tmp_path, body).stdout == text


def test_the_keepers_modules_are_all_there() -> None:
    import tunnelkit.keeper

    folder = Path(tunnelkit.keeper.__file__).parent
    names = {f"tunnelkit.keeper.{one.stem}" for one in folder.glob("*.py")}
    sent_names = {name for name, _ in keeper_modules(NOT_KEPT)}
    assert sent_names == names - {"tunnelkit.keeper.__init__"}


def test_the_header_is_what_sbatch_reads() -> None:
    text = b"#!/bin/bash -l\n#SBATCH -J a\n\n  # b\n#PBS -N c\n:\n#SBATCH -J late\n"
    assert SlurmBatchScripts().header(text) == b"#SBATCH -J a\n\n  # b\n#PBS -N c"
    body = sent(text)
    assert body.startswith(b"#!/bin/sh\n#SBATCH -J a\n\n  # b\n#PBS -N c\n# From here on")


@pytest.mark.parametrize(
    "text",
    [b"", b" \n\t", b"echo\n", b"#!/bin/sh\r\n", b"#!/bin/sh\n\0", b"#!/bin/sh\n#SBATCH --wait\n"],
)
def test_what_sbatch_refuses_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError):
        SlurmBatchScripts().header(text)
