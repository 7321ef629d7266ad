"""The words of `tk submit`: read as sbatch reads its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import UsageError
from tunnelkit.scheduler.pbs.batch_scripts import PbsBatchScripts
from tunnelkit.scheduler.slurm.batch_scripts import SlurmBatchScripts
from tunnelkit.session.submit.command_line import read_line


@pytest.mark.parametrize(
    "words, options, path, args",
    [
        ("a.sh", "", "a.sh", ""),
        ("a.sh -x --print-more b", "", "a.sh", "-x --print-more b"),
        ("-p gpu a.sh", "-p gpu", "a.sh", ""),
        ("-pgpu -Hc 2 a.sh 1", "-pgpu -Hc 2", "a.sh", "1"),
        ("--gpus 1 --hold a.sh", "--gpus 1 --hold", "a.sh", ""),
        ("--part gpu --exclusive a.sh", "--part gpu --exclusive", "a.sh", ""),
        ("-n 1 : -n 2 a.sh", "-n 1 : -n 2", "a.sh", ""),
        ("--new-option=1 a.sh", "--new-option=1", "a.sh", ""),
        ("--keep-on-failure -p gpu --idle 5m a.sh x", "-p gpu", "a.sh", "x"),
        ("a.sh --keep-on-failure=2h --print x --print", "", "a.sh", "x --print"),
        ("-p gpu -- a.sh --print", "-p gpu", "a.sh", "--print"),
        ("-- -a.sh", "", "-a.sh", ""),
    ],
)
def test_options_end_at_the_script(words: str, options: str, path: str, args: str) -> None:
    line = read_line(words.split())
    assert (line.options, line.path, line.args) == (options.split(), path, args.split())


def test_the_times() -> None:
    assert read_line(["a"]).keep_s == 0
    assert read_line(["--keep-on-failure", "a"]).keep_s == 3600
    line = read_line(["--keep-on-failure=90m", "--idle=1:30:00", "--keep-max=3", "a"])
    assert (line.keep_s, line.idle_s, line.most) == (5400, 5400, 3)
    for word in ("--keep-on-failure=", "--keep-on-failure=0", "--idle=soon", "--keep-max=0"):
        with pytest.raises(UsageError):
            read_line([word, "a"])
    for words in ([], ["-p", "gpu"], ["--idle"], ["--print=1", "a"]):
        with pytest.raises(UsageError):
            read_line(words)


def test_the_login_host_is_named_before_the_script() -> None:
    for words in (["--login", "me@other"], ["--login=me@other"]):
        line = read_line([*words, "-p", "gpu", "a.sh", "--login", "x"])
        assert (line.login, line.options, line.args) == (
            "me@other",
            ["-p", "gpu"],
            ["--login", "x"],
        )
    assert read_line(["a.sh", "--json", "--login", "x"]).args == ["--login", "x"]
    # It is sbatch's own.
    line = read_line(["--profile=task", "a.sh"])
    assert (line.login, line.options) == (None, ["--profile=task"])
    with pytest.raises(UsageError, match="--login has no value"):
        read_line(["--login"])


@given(args=st.lists(st.text(max_size=10)))
def test_every_argument_is_the_scripts(args: list[str]) -> None:
    assert read_line(["-p", "x", "--", "a.sh", *args]).args == args


@pytest.mark.parametrize("word", ["-W", "--wait", "-HW", "--wra=x", "--test-only", "-h"])
def test_what_would_give_no_job_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        SlurmBatchScripts().argv([word])


@pytest.mark.parametrize("words", ["-M cm4", "-Mcm4", "-HM cm4", "--clusters=a,b", "--cluster cm4"])
def test_another_cluster_s_job_would_not_be_found_again(words: str) -> None:
    scripts = SlurmBatchScripts()
    with pytest.raises(UsageError) as on_the_line:
        scripts.argv(words.split())
    with pytest.raises(UsageError) as in_the_script:
        scripts.header(f"#!/bin/sh\n#SBATCH -J x {words}\n".encode())
    for error in (on_the_line, in_the_script):
        assert "SLURM_CLUSTERS" in (error.value.hint or "")


def test_values_may_look_like_what_is_refused() -> None:
    scripts = SlurmBatchScripts()
    scripts.argv(["-JW", "-o", "W", "--job-name=--wait", "-kW", "--cluster-constraint=a"])
    scripts.header(b"#!/bin/sh\n#SBATCH -J -Mx --comment='a -M b' # -M cm4\n:\n#SBATCH -M cm4\n")


def test_the_text_is_read_when_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_bytes(b"#!/bin/sh\n\xff")
    line = read_line([str(path), "\udcff"])
    assert line.script().text == b"#!/bin/sh\n\xff"
    request = line.request("/here")
    assert (request.text.encode("latin-1"), request.args) == (b"#!/bin/sh\n\xff", ["\xff"])


def test_qsub_s_options_are_read_where_that_names_a_script(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("#!/bin/sh\n")
    line = read_line(["-l", "select=1", "-v", "A=1,B=2", "-joe", "--post-mortem=30m", str(path)])
    assert (line.path, line.stand_s) == (str(path), 1800)
    assert line.options == ["-l", "select=1", "-v", "A=1,B=2", "-joe"]


@pytest.mark.parametrize(
    "words", ["-I", "-W block=true", "-Wblock=true", "-z", "--", "-C #X", "-VI"]
)
def test_options_of_qsub_that_can_not_be_had(words: str) -> None:
    scripts = PbsBatchScripts()
    with pytest.raises(UsageError):
        scripts.argv(words.split(" "))
    with pytest.raises(UsageError):
        scripts.header(f"#!/bin/sh\n#PBS {words}\n".encode())
    scripts.argv(["-l", "walltime=1:00:00", "-W", "umask=022", "-N", "Iz", "-VP", "I"])


def test_the_lines_that_qsub_reads(tmp_path: Path) -> None:
    scripts = PbsBatchScripts()
    text = b"#PBS -N a\n\n  # b\n#PBS -l select=1\necho\n#PBS -I\n"
    assert scripts.header(text) == b"#PBS -N a\n\n  # b\n#PBS -l select=1"
    assert scripts.header(b"#!/bin/sh\n" + text) == scripts.header(text)
    for bad in (b"", b" \n", b"#!/bin/sh\r\nexit\r\n", b"a\0"):
        with pytest.raises(UsageError):
            scripts.header(bad)
    with pytest.raises(UsageError):
        scripts.check_args(["x"])
    scripts.check_args([])


def test_an_options_value_is_not_the_script() -> None:
    line = read_line(["--kill-on-invalid-dep", "yes", "--consolidate-segments", "s.sh", "1"])
    assert (line.path, list(line.args)) == ("s.sh", ["1"])
