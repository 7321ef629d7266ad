"""The questions of `tk why` to PBS, and the answers of a real OpenPBS 23.06, read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduler.pbs_transcripts import answer, as_text
from tunnelkit.diagnosis.evidence.job import GpuNeed, NodeNeed
from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import Completed, JobState
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.scheduler.pbs.inspect.ended import end_view
from tunnelkit.scheduler.pbs.inspect.inspector import QstatInspector, TorqueInspector
from tunnelkit.scheduler.pbs.inspect.job import exit_of, job_view, vnodes_of
from tunnelkit.scheduler.pbs.inspect.nodes import node_views
from tunnelkit.scheduler.pbs.inspect.request import chunks_of, need_of, size_bytes
from tunnelkit.scheduler.pbs.inspect.waiting import cluster_view
from tunnelkit.scheduler.pbs.parse import JobRecord, parse_attributes, parse_full
from tunnelkit.scheduler.pbs.torque import Torque
from tunnelkit.scheduler.sections import Section, parse_sections

MARK = "tk-0123"
NOW_S = 1_795_248_300.0


def said(**sections: str | tuple[str, int]) -> Completed:
    text = ""
    for name, told in sections.items():
        body, code = told if isinstance(told, tuple) else (told, 0)
        text += f"\n{MARK} {name}\n{body}\n{MARK}-code {code}\n"
    return Completed(0, text.encode(), b"")


def recorded(case: str) -> JobRecord:
    return parse_full(as_text(case).text)[0]


# --- the job -----------------------------------------------------------------------------------


def test_a_waiting_job() -> None:
    job = job_view(recorded("qstat-queued-json"))
    assert (job.job_id, job.state, job.native_state) == ("17.login", JobState.PENDING, "Q")
    assert (job.user, job.partition, job.name) == ("alice", "workq", "waits")
    assert job.need == NodeNeed(1, None, (GpuNeed(2),))
    assert job.required_nodes == ("node1",) and job.time_limit_s == 600
    assert job.submit_s == 1_795_248_226.0, "under TZ=UTC0 the times are of UTC"
    assert job.stdout_path == "/home/alice/waits.o17" and job.directory == "/home/alice"
    assert (job.reason or "").startswith("Not Running") and job.restarts == 0


def test_other_states() -> None:
    held = job_view(recorded("qstat-held-json"))
    assert held.reason == "Hold_Types = u"
    over = job_view(recorded("qstat-walltime-killed"))
    assert (over.state, over.exit_code, over.end_s) == (JobState.ENDED, -29, 1_795_248_354.0)
    assert over.nodes == ("node2",) and over.restarts == 0
    deleted = job_view(recorded("after-qdel-running"))
    assert deleted.state is JobState.ENDED, "PBS shows R until the node has confirmed"
    many = job_view(recorded("qstat-multinode-json"))
    assert many.nodes_wanted == 2 and many.need.gpus == (GpuNeed(1),)


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [("0", 0, None), ("3", 3, None), ("271", 271, 15), ("137", 137, None), ("-29", -29, None),
     ("", None, None), ("x", None, None), ("99999999", None, None)],
)  # fmt: skip
def test_exit_status(status: str, code: int | None, signal: int | None) -> None:
    assert exit_of(status) == (code, signal)


@pytest.mark.parametrize(
    ("select", "place", "wanted", "need", "named"),
    [
        ("2:ncpus=4:mem=16gb:ngpus=1", "scatter", 2, NodeNeed(4, 16 << 30, (GpuNeed(1),)), ()),
        ("2:ncpus=4:mem=16gb", "pack", 1, NodeNeed(8, 32 << 30), ()),
        ("1:ncpus=1+2:ncpus=8:ngpus=2", "free", 3, NodeNeed(8, None, (GpuNeed(2),)), ()),
        ("ncpus=2:gpu_model=a100:nfpga=3", "", 1, NodeNeed(2, features="gpu_model=a100"), ()),
        ("node7:ppn=4:gpus=1", "", 1, NodeNeed(4, None, (GpuNeed(1),)), ("node7",)),
        ("2:ppn=4", "", 2, NodeNeed(4), ()),
        ("", "", 1, NodeNeed(1), ()),
    ],
)
def test_requests(
    select: str, place: str, wanted: int, need: NodeNeed, named: tuple[str, ...]
) -> None:
    assert need_of(chunks_of(select), place) == (wanted, need, named)


def test_sizes() -> None:
    assert [size_bytes(one) for one in ("4gb", "24684096kb", "512", "2w", "", "x", "4 gb")] == [
        4 << 30, 24684096 << 10, 512, 16, None, None, None,
    ]  # fmt: skip
    assert vnodes_of("(node1:ncpus=2)+(node2:ncpus=1)+(node1:ncpus=1)") == ("node1", "node2")


# --- the cluster -------------------------------------------------------------------------------


def test_nodes_as_recorded() -> None:
    nodes = node_views(answer("nodes-json").text, "workq")
    assert nodes is not None
    by_name = {one.name: one for one in nodes}
    full, part = by_name["node2"], by_name["node1"]
    assert (full.cpus, full.cpus_idle, full.gpus) == (2, 0, ())
    assert full.states == {"job-busy", "allocated"}
    assert (part.cpus, part.cpus_idle, part.gpus[0].total, part.gpus[0].used) == (4, 2, 2, 1)
    assert part.states == {"free", "mixed"} and part.mem_bytes == 24684096 << 10
    assert part.partitions == {"workq"} and "host=node1" in part.features


def test_nodes_out_of_service_and_of_other_queues() -> None:
    row = {"state": "offline,down", "queue": "gpu", "comment": "fan", "last_state_change_time": 9,
           "resources_available": {"ncpus": 4, "Qlist": "a,b", "bigmem": "True"}}  # fmt: skip
    [node] = node_views(json.dumps({"nodes": {"n1": row, "n2": 3}}), "workq") or ()
    assert {"offline", "drained", "down"} <= node.states
    assert (node.reason, node.since_s) == ("fan", 9.0) and node.partitions == {"gpu"}
    assert {"Qlist=a", "Qlist=b", "bigmem=True"} <= node.features


def test_the_queue_and_what_is_switched_off() -> None:
    job = job_view(recorded("qstat-queued-json"))
    table = answer("qstat-n1").text + (
        "18.login        bob      workq    next          --    1   1    --  00:10 Q   --    -- \n"
    )
    queue = "Queue: workq\n    started = False\n    max_run = [u:PBS_GENERIC=1]\n"
    view = cluster_view(
        {
            "queue": Section(queue, 0), "server": Section(answer("server").text, 0),
            "jobs": Section(table, 0), "nodes": Section(answer("nodes-json").text, 0),
        },
        job, NOW_S,
    )  # fmt: skip
    assert view.missing == () and len(view.nodes) == 2
    assert [one.job_id for one in view.queue] == ["18.login"]
    mine = next(one for one in view.running if one.job_id == "14.login")
    assert (mine.user, mine.nodes, mine.ends_s) == ("alice", ("node1",), NOW_S + 600)
    assert view.switched_off == ("queue workq is stopped (started = False)",)
    assert [(one.owner, one.limit, one.used) for one in view.limits] == [("queue workq", 1, 4)]


def test_what_does_not_answer_is_said() -> None:
    job = job_view(recorded("qstat-queued-json"))
    view = cluster_view(
        {"queue": Section("qstat: no", 1), "jobs": Section("", 124), "nodes": Section("{", 0)},
        job, NOW_S,
    )  # fmt: skip
    assert [one.partition(":")[0] for one in view.missing] == [
        "qstat -Qf workq", "qstat -Bf", "qstat -n -1", "pbsnodes -a",
    ]  # fmt: skip
    assert "no answer within 10 s" in view.missing[2]
    server = parse_attributes(answer("server").text)
    assert server["scheduling"] == "True"
    assert server["state_count"].endswith("Begun:0 "), "a value goes on behind a tab"


# --- the end -----------------------------------------------------------------------------------


def test_logs_and_usage() -> None:
    record = recorded("qstat-walltime-killed")
    view = end_view(
        {
            "stdout": Section("/home/alice/a|b.o29|12|1795248354\nhello\nworld\n", 0),
            "stderr": Section("stat: cannot statx '/x': No such file or directory", 1),
        },
        record,
    )
    [log] = view.logs
    # Its record names another path: this one was given, and need not be this job's alone.
    assert (log.born_s, log.own) == (None, False)
    assert (log.path, log.text, log.size_bytes) == ("/home/alice/a|b.o29", "hello\nworld\n", 12)
    head = f"{record.get('Output_Path').partition(':')[2]}|12|1795248354 1795248300"
    later, before = (head.replace("|1795248354", f"|{at}") for at in (1795248554, 1795248154))
    cases = (("n", head, True), ("oed", head, False), ("n", later, False), ("n", before, False))
    for keep, first, own in cases:
        kept = replace(record, attributes={**record.attributes, "keep_files": keep})
        [log] = end_view({"stdout": Section(f"{first}\nhello\n", 0)}, kept).logs
        assert (log.born_s, log.own) == (1795248300, own)
    assert view.missing == ("the job's stderr: stat: cannot statx '/x': No such file or directory",)
    assert view.steps[0].max_rss_bytes == 6348 << 10


# --- the inspector -----------------------------------------------------------------------------


def test_who_is_asked() -> None:
    pbs, torque = PBS().inspector(), Torque().inspector()
    assert isinstance(pbs, QstatInspector) and isinstance(torque, TorqueInspector)
    argv = pbs.inspect("14.login", MARK)
    assert argv[4:] == [MARK, "14.login", "", "", "14", "-x", "", "", ""]
    assert "pbsnodes" in argv[2] and "pbsnodes" not in torque.inspect("14", MARK)[2]
    assert torque.inspect("14", MARK)[9] == ""
    for job_id in ("-x", "14;x", "$(id)", ""):
        with pytest.raises(UsageError):
            pbs.inspect(job_id, MARK)


def test_an_answer_of_each_kind() -> None:
    pbs = QstatInspector(history=True)
    waits = pbs.parse(said(now=str(int(NOW_S)), job=as_text("qstat-queued-json").text), "17", MARK)
    assert waits.asked_s == NOW_S and waits.cluster is not None and waits.end is None
    runs = pbs.parse(said(now="1", job=answer("qstat-running-f").text), "14.login", MARK)
    assert runs.job is not None and runs.cluster is None and runs.end is None
    over = pbs.parse(said(now="1", job=as_text("qstat-walltime-killed").text), "29", MARK)
    assert over.end is not None and over.job is not None
    gone = pbs.parse(said(now="1", job=("qstat: Unknown Job Id 99.login", 153)), "99", MARK)
    assert gone.job is None and gone.end is not None and gone.missing == ()
    away = pbs.parse(said(now="1", job=("qstat: cannot connect to server x", 255)), "9", MARK)
    assert away.job is None and "cannot connect" in away.missing[0]
    with pytest.raises(SchedulerError) as caught:
        pbs.parse(Completed(127, b"", b"sh: no"), "9", MARK)
    assert caught.value.transient


def test_the_newest_job() -> None:
    pbs = QstatInspector(history=True)
    both = as_text("qstat-walltime-killed").stdout + as_text("qstat-queued-json").stdout
    assert pbs.parse_newest(Completed(0, both, b"")) == "17.login", "one that waits is newer"
    over = as_text("qstat-walltime-killed").stdout + as_text("qstat-finished-exit-3").stdout
    assert pbs.parse_newest(Completed(0, over, b"")) == "29.login"
    assert pbs.parse_newest(Completed(0, b"", b"")) is None
    with pytest.raises(SchedulerError):
        pbs.parse_newest(Completed(255, b"", b"qselect: cannot connect to server x (errno=1)"))


# --- any text ----------------------------------------------------------------------------------

LINES = st.sampled_from(
    """Job Id: 7.x|    job_state = Q|    job_state = F|    Resource_List.select = 1:ncpus=2|\tmore|
    run_count = 3|    Exit_status = -29|    exec_host = a/0*2|    etime = Sat Nov 31 08:03:33 2026|
    resources_used.diag_messages = {}|    depend = afterok:1.x""".replace("|\n", "|").split("|")
) | st.text(max_size=40).map(lambda text: f"    comment = {text}")


@given(st.lists(LINES, max_size=14).map("\n".join), st.text(max_size=60))
def test_any_answer_is_read(record: str, other: str) -> None:
    pbs = QstatInspector(history=True)
    done = said(now="7", job=record, queue=other, server=other, jobs=other, nodes=other,
                stdout=other, stderr=other)  # fmt: skip
    found = pbs.parse(done, "7", MARK)
    assert found.asked_s in (0.0, 7.0)
    pbs.parse_newest(Completed(0, record.encode("utf-8", "replace"), b""))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9),
                    lambda one: st.lists(one, max_size=3)
                    | st.dictionaries(st.sampled_from(["nodes", "state", "resources_available",
                                                       "ncpus", "mem", "queue", "n1"]), one),
                    max_leaves=12))  # fmt: skip
def test_any_json_of_nodes_is_read(value: object) -> None:
    node_views(json.dumps({"nodes": value}), "workq")
    node_views(json.dumps({"nodes": {"n1": value}}), "workq")
    node_views(json.dumps(value), "workq")


@given(st.text(max_size=80), st.text(max_size=20))
def test_any_request_is_read(select: str, place: str) -> None:
    need_of(chunks_of(select), place)
    vnodes_of(select)
    size_bytes(select)


def test_sections_are_those_of_the_mark() -> None:
    assert parse_sections(said(now="1").text, "other") == {}


def test_a_time_limit_is_shortened_by_qalter() -> None:
    pbs = QstatInspector("/opt/pbs/bin")
    argv = ["timeout", "10", "/opt/pbs/bin/qalter", "-l", "walltime=1:05:00", "7.server"]
    assert pbs.shorten("7.server", 65) == argv
    pbs.parse_shorten(Completed(0, b"", b""), "7")
    with pytest.raises(SchedulerError, match="did not shorten") as refused:
        pbs.parse_shorten(Completed(159, b"", b"qalter: Unauthorized Request 7.server"), "7")
    assert "Unauthorized" in str(refused.value.cause)


def test_a_property_is_matched_as_pbs_matches_it() -> None:
    """A node says `True` and has an `arch`; scripts say `bigmem=true` and `arch=linux`."""
    has = {"ncpus": 8, "bigmem": "True", "arch": "linux"}
    nodes = {"nodes": {"n1": {"state": "free", "resources_available": has}}}
    views = node_views(json.dumps(nodes), "workq")
    _, need, _ = need_of(chunks_of("1:ncpus=4:bigmem=y:arch=linux"), "")
    assert views is not None and need.features == "bigmem=True&arch=linux"
    assert {"bigmem=True", "arch=linux"} <= {*views[0].features}
    assert need_of(chunks_of("1:scratch=F"), "")[1].features == "scratch=False"
