"""The options in Slurm's batch scripts, read as sbatch reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.scheduler.script_options import ScriptRequest, Wanted, split_words
from tunnelkit.scheduler.slurm.script_options import SlurmScriptOptions

GB = 1 << 30
SLURM = SlurmScriptOptions()


def request(*words: str) -> ScriptRequest:
    return SLURM.request(words)


@pytest.mark.parametrize(
    "line, words",
    [
        ("--comment='two words' -c 2", ["--comment=two words", "-c", "2"]),
        ("--requeue # why --hold", ["--requeue"]),
        ('-J "a b" --x=#1', ["-J", "a b", "--x=#1"]),
        (r"-J a\ b ''", ["-J", "a b", ""]),
        ("", []),
    ],
)
def test_a_line_is_split_as_by_sbatch(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@given(st.text(max_size=200))
def test_any_line_is_split(line: str) -> None:
    assert all(isinstance(word, str) for word in split_words(line))


def test_options_end_at_the_first_command() -> None:
    script = b"#!/bin/sh\n#SBATCH -c 2\n# text\n##SBATCH -c 3\n#SBATCHx\n\n#SBATCH --mem=1G\n:\n"
    script += b"#SBATCH -c 8\n  #SBATCH -c 9\n"
    assert SLURM.words(script) == ["-c", "2", "--mem=1G"]
    assert SLURM.late(script) == [9]


@pytest.mark.parametrize("word", ["hetjob", "packjob"])
def test_a_script_runs_in_the_first_component_of_its_job(word: str) -> None:
    script = f"#!/bin/sh\n#SBATCH -c 2 --mem=4G\n#SBATCH {word}\n#SBATCH -c 24 --gpus=2\n:\n"
    found = SLURM.request(SLURM.words(script.encode()))
    assert (found.cpus, found.mem_bytes, found.gpus) == (2, 4 * GB, 0)


@pytest.mark.parametrize(
    "text",
    [
        "sbatch <<EOF\n#!/bin/bash\n#SBATCH -c 2\nEOF",
        "cat >next.sh <<-'END-OF-JOB'\n#SBATCH -c 2\nit's\n\tEND-OF-JOB",
        'job="$(sbatch --parsable <<EOF\n#SBATCH --comment="a b"\n#SBATCH -c 2\nEOF\n)"',
        "cat <<A <<'B'\n#SBATCH -c 2\nA\n#SBATCH -c 2\nB",
        "printf '#!/bin/sh\n#SBATCH -c 2\n' >next.sh",
    ],
)
def test_another_job_s_options_are_text(text: str) -> None:
    script = f"#!/bin/bash\n#SBATCH --mem=1G\n# it's the first of two\n{text}\n".encode()
    assert SLURM.words(script) == ["--mem=1G"]
    assert SLURM.late(script) == []
    assert SLURM.late(script + b"#SBATCH -c 8\n") == [script.count(b"\n") + 1]


@pytest.mark.parametrize(
    "text",
    [
        "N=$((1<<k))",
        "read A <<<EOF",
        "echo '<<EOF' \\<<",
        "cat <<NEVER",
        "echo \\' # <<EOF",
        "it's",
    ],
)
def test_what_is_no_here_document_hides_nothing(text: str) -> None:
    script = f"#!/bin/bash\n{text}\n#SBATCH -c 8\nEOF\nk))\n".encode()
    assert SLURM.late(script) == [3]


@pytest.mark.parametrize(
    "words, cpus, memory, gpus",
    [
        ("-c 4 --mem=8G", 4, 8 * GB, 0),
        ("-c4 --mem 8192", 4, 8 * GB, 0),
        ("--cpus-per-task=2 -n 4 -N 2 --mem-per-cpu=1G", 4, 4 * GB, 0),
        ("--cpus-per-t 2 --ntasks-per-node=3 -N2", 6, None, 0),
        ("--gres=gpu:a100:2,lustre --mem=0", 1, None, 2),
        ("--gres=gpu:2080ti:2", 1, None, 2),
        ("-G 8 -N 4 --mem-per-gpu=16G", 1, 32 * GB, 2),
        ("--gpus-per-node=v100:4", 1, None, 4),
        ("--gpus-per-task=1 --ntasks-per-node=4", 4, None, 4),
        ("-Hc 2 -c 3", 3, None, 0),
    ],
)
def test_what_is_asked_for_on_a_node(words: str, cpus: int, memory: int | None, gpus: int) -> None:
    found = request(*words.split())
    assert (found.cpus, found.mem_bytes, found.gpus) == (cpus, memory, gpus)


@pytest.mark.parametrize(
    "text, seconds",
    [("10", 600), ("1:30", 90), ("1-0", 86400), ("02:00:00", 7200), ("UNLIMITED", None)],
)
def test_time(text: str, seconds: int | None) -> None:
    assert request("-t", text).time_s == seconds
    assert request("--time", text).unread == ()


def test_what_can_not_be_read_is_named() -> None:
    found = request("--mem=lots", "-t", "soon", "-c", "x", "-N", "0")
    assert found.unread == ("--nodes=0", "--cpus-per-task=x", "--mem=lots", "--time=soon")
    assert (found.cpus, found.mem_bytes, found.time_s, found.nodes) == (1, None, None, 1)


def test_names_and_places() -> None:
    found = request(
        "-J",
        "n",
        "-o",
        "l/%j",
        "--error=e",
        "-D",
        "~/x",
        "-a",
        "3-9%2",
        "-p",
        "a,b",
        "--export=NONE",
    )
    assert (found.name, found.outputs, found.directory) == ("n", ("l/%j", "e"), "~/x")
    assert (found.array_first, found.partition, found.clean) == (3, "a", True)


def variables(*words: str) -> dict[str, str]:
    return SLURM.variables(request(*words), "here", "/work", {"LOGNAME": "me"})


def test_a_job_s_variables() -> None:
    found = variables("-c", "4", "-n", "2", "--mem=2G", "-a", "5")
    assert found["SLURM_CPUS_PER_TASK"] == "4"
    assert found["SLURM_NTASKS"] == "2"
    assert found["SLURM_MEM_PER_NODE"] == "2048"
    assert found["SLURM_ARRAY_TASK_ID"] == "5"
    assert (found["SLURM_SUBMIT_DIR"], found["SLURM_JOB_USER"]) == ("/work", "me")
    # As in a job: only what was asked for is there.
    plain = variables("-N", "1")
    assert not {"SLURM_CPUS_PER_TASK", "SLURM_NTASKS", "SLURM_MEM_PER_NODE"} & plain.keys()


TASKS = {"SLURM_NTASKS", "SLURM_NPROCS"}
GPUS = {"SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS"}


@pytest.mark.parametrize(
    "words, names",
    [
        ("-N 1", set()),
        ("--ntasks=1", TASKS),
        ("--ntasks-per-node=1", TASKS | {"SLURM_NTASKS_PER_NODE"}),
        ("-n 1 --ntasks-per-socket=1", TASKS | {"SLURM_NTASKS_PER_SOCKET"}),
        ("-G 1", GPUS | {"SLURM_GPUS"}),
        ("--gres=gpu:1", GPUS),
        ("--gpus-per-node=1", GPUS | {"SLURM_GPUS_PER_NODE"}),
        ("-n 1 --gpus-per-task=1", TASKS | GPUS | {"SLURM_GPUS_PER_TASK"}),
        ("--ntasks-per-gpu=1 --gpus=1",
         TASKS | GPUS | {"SLURM_GPUS", "SLURM_NTASKS_PER_GPU"}),
        ("-G 1 --mem-per-gpu=10 --cpus-per-gpu=1",
         GPUS | {"SLURM_GPUS", "SLURM_MEM_PER_GPU", "SLURM_CPUS_PER_GPU"}),
        ("-O --threads-per-core=1 -m block -q high",
         {"SLURM_OVERCOMMIT", "SLURM_THREADS_PER_CORE", "SLURM_DISTRIBUTION", "SLURM_JOB_QOS"}),
    ],
)  # fmt: skip
def test_variables_of_what_was_asked_for(words: str, names: set[str]) -> None:
    """As Slurm 22.05 sets them."""
    assert variables(*words.split()).keys() - variables().keys() == names


@pytest.mark.parametrize(
    "text, first, count, most, step",
    [
        ("5", "5", "1", "5", "1"),
        ("1-7:3%1", "1", "3", "7", "3"),
        ("4,0-2", "0", "4", "4", "1"),
        ("0-8:3", "0", "3", "6", "3"),
        ("3,0-10:5", "0", "4", "10", "5"),
        ("[0-3]", "0", "4", "3", "1"),
        ("1-3,2-4", "1", "4", "4", "1"),
        ("0-999999999", "0", "1000000000", "999999999", "1"),
    ],
)
def test_variables_of_an_array(text: str, first: str, count: str, most: str, step: str) -> None:
    names = ("ID", "MIN", "COUNT", "MAX", "STEP")
    found = variables("--array", text)
    assert [found[f"SLURM_ARRAY_TASK_{name}"] for name in names] == [
        first,
        first,
        count,
        most,
        step,
    ]


def test_an_array_that_is_none() -> None:
    for text in ("x", "3-1", "1-", "1-3:0"):
        assert request("--array", text).unread == (f"--array={text}",)
        assert "SLURM_ARRAY_JOB_ID" not in variables("--array", text)


def test_only_the_head_is_asked_about_and_nothing_is_submitted() -> None:
    script = b"#!/bin/bash\n#SBATCH -c 2\nrm -rf $HOME\n"
    ask = SLURM.dry_run(script, ["-p", "gpu"])
    assert ask.stdin == b"#!/bin/bash\n#SBATCH -c 2\n:\n"
    assert ask.argv[-3:] == ("--test-only", "-p", "gpu")


def test_refusals() -> None:
    said = "sbatch: error: invalid partition specified: x\nallocation failure: Invalid partition"
    (one,) = SLURM.refusals(request(), 1, said) or ()
    assert one.text.startswith("sbatch refuses it: ") and "partition" in one.text
    assert SLURM.refusals(request(), 0, "Job 5 to start at ...") == []
    silent = "sbatch: error: Unable to contact slurm controller (connect failure)"
    assert SLURM.refusals(request(), 1, silent) is None
    assert SLURM.refusals(request(), 124, "") is None


def test_a_rule_of_the_site_refuses() -> None:
    said = "sbatch: error: Name an account, then try again\nallocation failure: Unspecified error"
    (one,) = SLURM.refusals(request(), 1, said) or ()
    assert "Name an account, then try again; Unspecified error" in one.text
    assert SLURM.refusals(request(), 1, "allocation failure: Unspecified error") is None


def test_tk_s_own_options_are_the_last() -> None:
    words = [
        *SLURM.words(b"#!/bin/sh\n#SBATCH --mem=1G -t 5\n"),
        *SLURM.asking(Wanted("2G", 3, 90)),
    ]
    found = SLURM.request(words)
    assert (found.mem_bytes, found.cpus, found.time_s) == (2 * GB, 3, 90)


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_options_make_a_request(words: list[str]) -> None:
    found = SLURM.request(words)
    assert found.cpus >= 1 and found.nodes >= 1
    SLURM.variables(found, "h", "/", {})
