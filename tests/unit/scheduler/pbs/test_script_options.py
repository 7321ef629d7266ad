"""The options in PBS's batch scripts, and what a queue would refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.scheduler.pbs.script_options import PbsScriptOptions
from tunnelkit.scheduler.script_options import ScriptRequest, Wanted, is_for_pbs

GB = 1 << 30
PBS = PbsScriptOptions()
SERVER = "Server: pbs\n    server_state = Active\n    default_queue = workq\n"
QUEUES = """\
Queue: workq
    queue_type = Execution
    enabled = True
    started = True
    resources_max.walltime = 01:00:00
    resources_max.mem = 16gb
    resources_min.ncpus = 2

Queue: closed
    enabled = False
    started = True
"""


def answer(server: str = SERVER, queues: str = QUEUES) -> str:
    return f"{server}\ntk-queues\n{queues}"


def texts(request: ScriptRequest) -> list[str]:
    return [one.text for one in PBS.refusals(request, 0, answer()) or ()]


@pytest.mark.parametrize(
    "words, cpus, memory, gpus, nodes",
    [
        ("-l select=2:ncpus=4:mem=8gb:ngpus=1", 4, 8 * GB, 1, 2),
        ("-l nodes=1:ppn=8:gpus=2 -l mem=4gb", 8, 4 * GB, 2, 1),
        # -l mem is the whole job's; the script runs in the first chunk.
        ("-l nodes=2:ppn=8,mem=64gb", 8, 32 * GB, 0, 2),
        ("-l select=1:ncpus=2:mem=4gb+1:ncpus=24:ngpus=2:mem=64gb", 2, 4 * GB, 0, 2),
        ("-l select=1:ncpus=2:mem=4gb+1:ncpus=6:ngpus=2 -l place=pack", 8, 4 * GB, 2, 1),
        ("-lselect=1:ncpus=2,walltime=10:00", 2, None, 0, 1),
        ("-l ncpus=3 -l mem=1024mb", 3, GB, 0, 1),
        ("", 1, None, 0, 1),
    ],
)
def test_resources(words: str, cpus: int, memory: int | None, gpus: int, nodes: int) -> None:
    found = PBS.request(words.split())
    assert (found.cpus, found.mem_bytes, found.gpus, found.nodes) == (cpus, memory, gpus, nodes)


def test_lines_of_a_script() -> None:
    script = (
        b"#!/bin/sh\n#PBS -N name -q gpu\n#PBS -l walltime=1:00:00 -o host:out/log\n:\n#PBS -h\n"
    )
    found = PBS.request(PBS.words(script))
    assert (found.name, found.partition, found.time_s) == ("name", "gpu", 3600)
    assert found.outputs == ("out/log",)
    assert PBS.late(script) == [5]
    assert PBS.takes_next("-q") and not PBS.takes_next("-qgpu") and not PBS.takes_next("-I")


def test_another_job_s_options_are_text() -> None:
    body = b"qsub <<EOF\n#PBS -l walltime=60\nEOF\nsbatch <<EOF\n#SBATCH -c 2\nEOF\n"
    script = b"#!/bin/sh\n#PBS -N name\n" + body
    assert PBS.words(script) == ["-N", "name"]
    assert PBS.late(script) == [] and PBS.late(script + b"#PBS -h\n") == [9]
    assert is_for_pbs(script) and is_for_pbs(b"#!/bin/sh\n:\n#PBS -h\n")
    assert not is_for_pbs(b"#!/bin/sh\n" + body) and not is_for_pbs(script + b"#SBATCH -c 2\n")


def test_a_queue_s_limits() -> None:
    over = PBS.request(["-l", "select=1:ncpus=1:mem=32gb", "-l", "walltime=2:00:00"])
    assert texts(over) == [
        "walltime 2:00:00: queue workq takes at most 1:00:00",
        "mem 32 GB: queue workq takes at most 16 GB",
        "ncpus 1: queue workq takes at least 2",
    ]
    well = PBS.request(["-l", "select=1:ncpus=2:mem=8gb"])
    assert texts(well) == []
    assert texts(PBS.request(["-q", "closed"])) == [
        "queue closed takes no jobs now (enabled = False)"
    ]
    assert texts(PBS.request(["-q", "none"])) == ["there is no queue none: there are closed, workq"]


@pytest.mark.parametrize(
    "words, refused",
    [
        ("select=1:ncpus=2:mem=4gb+1:ncpus=24:ngpus=2:mem=64gb", []),
        ("nodes=2:ppn=8,mem=64gb", []),
        ("select=2:ncpus=2:mem=8gb+1:ncpus=30:ngpus=4:mem=81gb",
         ["mem 97 GB", "ncpus 34", "ngpus 4"]),
        ("nodes=2:ppn=20,mem=100gb", ["mem 100 GB", "ncpus 40"]),
    ],
)  # fmt: skip
def test_a_queue_limits_a_job_as_a_whole(words: str, refused: list[str]) -> None:
    maxima = {"ncpus": "32", "mem": "96gb", "ngpus": "2"}
    limits = "".join(f"    resources_max.{name} = {value}\n" for name, value in maxima.items())
    text = answer(queues=f"Queue: workq\n{limits}")
    found = PBS.refusals(PBS.request(["-l", words]), 0, text) or ()
    assert [one.text.partition(":")[0] for one in found] == refused


def test_a_server_that_does_not_answer_refuses_nothing() -> None:
    assert PBS.refusals(ScriptRequest(), 1, "qstat: cannot connect to server") is None
    assert PBS.refusals(ScriptRequest(), 0, "") is None
    hidden = answer(server="Server: pbs\n    server_state = Active\n")
    assert PBS.refusals(ScriptRequest(), 0, hidden) is None
    only = answer(server="Server: pbs\n", queues="Queue: one\n    enabled = False\n")
    assert len(PBS.refusals(ScriptRequest(), 0, only) or ()) == 1


def test_tk_s_own_options() -> None:
    words = ["-l", "select=1:ncpus=4:mem=8gb", *PBS.asking(Wanted("2G", 2, 90))]
    found = PBS.request(words)
    assert (found.mem_bytes, found.cpus, found.time_s) == (2 * GB, 2, 90)
    assert PBS.request(PBS.asking(Wanted("500"))).mem_bytes == 500 << 20
    # tk's memory is each node's.
    found = PBS.request(["-l", "nodes=2:ppn=8,mem=64gb", *PBS.asking(Wanted("2G"))])
    assert (found.mem_bytes, found.whole.mem_bytes) == (2 * GB, 4 * GB)


def test_a_job_s_variables() -> None:
    found = PBS.request(["-l", "select=1:ncpus=4", "-J", "2-5"])
    here = {"HOME": "/h", "LOGNAME": "me", "PATH": "/bin", "OWN": "x"}
    variables = PBS.variables(found, "here", "/work", here)
    assert (variables["NCPUS"], variables["PBS_O_WORKDIR"]) == ("4", "/work")
    assert variables["OMP_NUM_THREADS"] == "4"
    assert (variables["PBS_O_HOME"], variables["PBS_O_LOGNAME"]) == ("/h", "me")
    assert (variables["PBS_JOBDIR"], variables["PBS_O_PATH"]) == ("/h", "/bin")
    assert variables["PBS_ARRAY_INDEX"] == variables["PBS_ARRAYID"] == "2"
    assert (variables["PBS_JOBID"], variables["PBS_ARRAY_ID"]) == ("0[2].simulate", "0[].simulate")
    plain = PBS.variables(PBS.request(["-l", "walltime=60"]), "here", "/work", {})
    assert not {"PBS_ARRAY_INDEX", "PBS_ARRAY_ID", "PBS_O_HOME"} & plain.keys()
    assert (plain["PBS_JOBID"], plain["PBS_WALLTIME"]) == ("0.simulate", "60")


@pytest.mark.parametrize(
    "words, slots, threads",
    [
        ("-l select=1:ncpus=4", 1, "4"),
        ("-l select=2:ncpus=4:mpiprocs=2:ompthreads=2", 2, "2"),
        ("-l nodes=2:ppn=8", 8, "8"),
        ("-l ncpus=3", 1, "3"),
        ("", 1, "1"),
    ],
)
def test_the_node_file_has_a_row_for_each_process_of_mpi(
    words: str, slots: int, threads: str
) -> None:
    found = PBS.request(words.split())
    assert found.slots == slots
    assert PBS.variables(found, "h", "/", {})["OMP_NUM_THREADS"] == threads


@given(st.lists(st.text(max_size=12), max_size=8), st.text(max_size=200))
def test_any_options_and_any_answer(words: list[str], text: str) -> None:
    found = PBS.request(words)
    assert found.cpus >= 1
    PBS.refusals(found, 0, answer(queues=f"Queue: workq\n    {text}\n{text}"))
