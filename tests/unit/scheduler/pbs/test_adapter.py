"""qstat's answers, read, as a real OpenPBS 23.06 gave them."""

from __future__ import annotations

import json

import pytest

from tests.unit.scheduler.pbs_transcripts import answer, as_text
from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.scheduler.pbs.adapter import PBS, Qstat
from tunnelkit.scheduler.pbs.parse import nodes_of, parse_full, seconds
from tunnelkit.scheduler.pbs.torque import Torque

DOWN = Completed(
    111, b"", b"Connection refused\nqstat: cannot connect to server login (errno=111)\n"
)
NO_HISTORY = Completed(
    0,
    b'{\n\t"timestamp":\t1795248241,\n\t"pbs_version":\t"23.06.06"\n}\n',
    b"qstat: PBS is not configured to maintain job history 14.login\n",
)


def ask(done: Completed, job_id: str, pbs: PBS | None = None) -> JobStatus:
    return (pbs or PBS()).parse_query(done, [job_id])[job_id]


def done(stdout: bytes = b"", stderr: bytes = b"", code: int = 0) -> Completed:
    return Completed(code, stdout, stderr)


def test_both_are_schedulers() -> None:
    schedulers: list[Scheduler] = [PBS(), Torque()]
    assert [one.name for one in schedulers] == ["pbs", "torque"]


# --- asking ------------------------------------------------------------------------------------


def test_one_job_is_asked_for_as_json_and_several_as_text() -> None:
    assert PBS("/opt/pbs/bin").query(["14.login"]).argv == (
        "/opt/pbs/bin/qstat", "-x", "-f", "-F", "json", "14.login",
    )  # fmt: skip
    assert PBS().query(["14.login", "15"]).argv == ("qstat", "-x", "-f", "14.login", "15")
    assert PBS(history=False).query(["14"]).argv == ("qstat", "-f", "-F", "json", "14")


@pytest.mark.parametrize("job_id", ["-x", "", "14 15", "a", "14.login;x", "$(id)"])
def test_only_ids_are_asked_for(job_id: str) -> None:
    for make in (PBS().query, Torque().query):
        with pytest.raises(UsageError):
            make([job_id])
    with pytest.raises(UsageError):
        PBS().cancel(job_id)


def test_json_that_is_none_is_not_asked_for_again() -> None:
    pbs = PBS()
    broken = answer("qstat-running-json").stdout.replace(b'"u"', b'"u"u"')
    with pytest.raises(SchedulerError) as caught:
        ask(done(broken), "14.login", pbs)
    assert caught.value.transient
    assert pbs.query(["14.login"]).argv == ("qstat", "-x", "-f", "14.login")
    assert ask(answer("qstat-running-f"), "14.login", pbs).state is JobState.RUNNING


def test_a_qstat_that_ignores_json_is_understood() -> None:
    assert ask(answer("qstat-running-f"), "14.login").nodes == ("node1",)


def test_where_there_is_no_history_it_is_not_asked_for_again() -> None:
    pbs = PBS()
    with pytest.raises(SchedulerError) as caught:
        ask(NO_HISTORY, "14.login", pbs)
    assert caught.value.transient
    assert pbs.query(["14.login"]).argv == ("qstat", "-f", "-F", "json", "14.login")


# --- states ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [answer, as_text])
@pytest.mark.parametrize(
    ("case", "job_id", "state", "words"),
    [
        ("qstat-running-json", "14.login", JobState.RUNNING, ""),
        ("after-qdel-running", "14.login", JobState.ENDED, "deleted by alice@login"),
        ("qstat-multinode-json", "15.login", JobState.PENDING, "waiting for the nodes"),
        ("qstat-queued-json", "17.login", JobState.PENDING, "ngpus: 2 asked for, 0 free of 2"),
        ("qstat-never-runs-json", "18.login", JobState.PENDING, "ngpus: 9 asked for, 2 free of 2"),
        (
            "qstat-unknown-node-json",
            "19.login",
            JobState.PENDING,
            "node node99, and there are node2,node1",
        ),
        ("qstat-held-json", "20.login", JobState.PENDING, "qrls 20.login frees it"),
        ("qstat-finished-x-json", "25.login", JobState.PENDING, "the node to become free"),
        ("qstat-finished-exit-3", "28.login", JobState.ENDED, "exit code 3"),
        ("qstat-walltime-killed", "29.login", JobState.ENDED, "reached its time limit"),
        ("qstat-after-qdel", "30.login", JobState.ENDED, "the job was deleted"),
    ],
)
def test_states_as_printed(
    form: object, case: str, job_id: str, state: JobState, words: str
) -> None:
    assert callable(form)
    status = ask(form(case), job_id)
    assert status.state is state
    assert words in (status.explanation or "")


@pytest.mark.parametrize("form", [answer, as_text])
def test_a_job_that_is_ending_is_over_but_not_told_how(form: object) -> None:
    assert callable(form)
    told = form("qstat-running-json")
    told = done(told.stdout.replace(b'":\t"R"', b'":\t"E"').replace(b"_state = R", b"_state = E"))
    status = ask(told, "14.login")
    assert (status.state, status.ending) == (JobState.ENDED, True)
    assert not ask(form("qstat-walltime-killed"), "29.login").ending


@pytest.mark.parametrize("form", [answer, as_text])
def test_a_running_job(form: object) -> None:
    assert callable(form)
    status = ask(form("qstat-running-json"), "14.login")
    assert status.nodes == ("node1",)
    assert status.native_state == "R"
    # Only the JSON tells the server's clock: 5 s after the start.
    assert status.time_left_s == (595 if form is answer else 600)


@pytest.mark.parametrize(
    ("used", "elapsed", "zone", "left"),
    [
        ("00:00:00", 0, 0, 7200),
        ("00:58:00", 3599, 0, 3601),
        ("00:58:00", 3599, 19800, 3601),
        ("00:58:00", 3599, -34200, 3601),
        ("01:00:00", 3599, 0, 3600),
        # Half an hour of it was spent suspended.
        ("00:30:00", 4200, 3600, 5400),
    ],
)
def test_time_left_whatever_the_servers_zone(used: str, elapsed: int, zone: int, left: int) -> None:
    told = json.loads(answer("qstat-running-json").stdout)
    job = told["Jobs"]["14.login"]
    job["resources_used"]["walltime"] = used
    job["Resource_List"]["walltime"] = "02:00:00"
    started = 1795248213  # 08:03:33 UTC, as stime has it
    told["timestamp"] = started - zone + elapsed
    status = ask(done(json.dumps(told).encode()), "14.login")
    assert status.time_left_s is not None
    assert abs(status.time_left_s - left) <= 1


def test_the_text_form_joins_what_was_wrapped() -> None:
    [record] = parse_full(answer("qstat-running-f").text)
    assert record.get("Submit_arguments").endswith("-l walltime=00:10:00")
    assert "/opt/pbs/bin:/opt/pbs/bin,PBS_O_MAIL" in record.get("Variable_List")
    assert record.get("Submit_Host") == "login"


def test_an_environment_variable_does_not_pass_for_an_attribute() -> None:
    text = answer("qstat-running-f").text.replace(
        "PBS_O_WORKDIR=/home/alice", "X=1\n    job_state = F\n    comment = forged"
    )
    assert ask(done(text.encode()), "14.login").state is JobState.RUNNING


@pytest.mark.parametrize("case", ["qstat-unknown-job", "qdel-unknown-job"])
def test_an_unknown_job_is_unknown_and_never_ended(case: str) -> None:
    status = ask(answer(case), "99999")
    assert status.state is JobState.UNKNOWN
    assert status.native_state == ""


def test_a_greeting_is_no_answer_about_a_job_that_is_gone() -> None:
    gone = done(b"Welcome, dear user\n", answer("qstat-gone-without-x").stderr, 153)
    assert ask(gone, "14.login").state is JobState.UNKNOWN
    with pytest.raises(SchedulerError):
        ask(done(b"Welcome, dear user\n", b"qstat: illegally formed job identifier: x", 1), "14")


def test_a_finished_job_where_history_was_not_asked_for() -> None:
    gone = answer("qstat-gone-without-x")
    assert ask(gone, "30.login", PBS(history=False)).state is JobState.ENDED
    assert ask(gone, "3.login", PBS(history=False)).state is not JobState.ENDED


def test_the_rest_is_told_of_although_one_is_unknown() -> None:
    both = done(answer("qstat-running-f").stdout, b"qstat: Unknown Job Id 99.login\n", 153)
    found = PBS().parse_query(both, ["14.login", "99"])
    assert found["14.login"].state is JobState.RUNNING
    assert found["99"].state is JobState.UNKNOWN


@pytest.mark.parametrize("code", [111, 0])
def test_a_server_that_is_away_is_no_end(code: int) -> None:
    away = done(stderr=DOWN.stderr, code=code)
    for ask_it in (
        lambda: ask(away, "14.login"),
        lambda: Torque().parse_query(away, ["14"]),
        lambda: PBS().parse_find(done(b"tk-user alice\n", DOWN.stderr, code), "tk-x"),
    ):
        with pytest.raises(SchedulerError) as caught:
            ask_it()
        assert caught.value.transient
    assert PBS().parse_history(away) is JobState.UNKNOWN


_NOISE = b"""NOTE: /scratch is for temporary files only
If authentication times out, try again: connection timed out, errno=5
.bashrc: line 12: module: command not found
"""


def test_what_the_login_shell_prints_is_not_the_servers() -> None:
    me = b"tk-user alice\n"
    [job] = PBS().parse_find(done(me + found(), _NOISE), "debug")
    assert job.job_id == "14.login"
    assert PBS().parse_find(done(me, _NOISE), "debug") == []
    gone = done(stderr=_NOISE + answer("qstat-unknown-job").stderr, code=153)
    assert ask(gone, "14.login").state is JobState.UNKNOWN
    assert PBS().parse_history(gone) is JobState.ENDED
    for code in (0, 111):
        with pytest.raises(SchedulerError) as caught:
            ask(done(stderr=_NOISE + DOWN.stderr, code=code), "14.login")
        assert caught.value.transient
        assert caught.value.cause == (
            "Connection refused; cannot connect to server login (errno=111)"
        )


@pytest.mark.parametrize(
    "line",
    [
        b"pbs_iff: cannot connect to host",
        b"auth: error returned: 15029 (munge)",
        b"Cannot connect to default server host 's' - check pbs_server daemon.",
        b"Unable to communicate with s(10.0.0.1)",
        b"/opt/pbs/bin/qstat: End of File",
    ],
)
def test_a_servers_silence_is_known_by_any_of_its_lines(line: bytes) -> None:
    with pytest.raises(SchedulerError) as caught:
        ask(done(stderr=_NOISE + line + b"\n"), "14.login")
    assert caught.value.transient


def test_what_is_no_job_id_is_refused_for_good() -> None:
    with pytest.raises(SchedulerError) as caught:
        ask(answer("qstat-bad-jobid"), "14")
    assert not caught.value.transient


def test_the_servers_word_is_proof_of_an_end() -> None:
    assert PBS().parse_history(answer("qstat-unknown-job")) is JobState.ENDED
    assert PBS().parse_history(answer("qstat-gone-without-x")) is JobState.ENDED
    assert PBS().parse_history(answer("qstat-running-f")) is JobState.RUNNING


# --- find, cancel, estimate --------------------------------------------------------------------


def found(owner: str = "alice@login", name: str = "debug", case: str = "qstat-running-f") -> bytes:
    text = (answer(case) if case == "qstat-running-f" else as_text(case)).text
    text = text.replace("Job_Owner = alice@login", f"Job_Owner = {owner}")
    return text.replace("Job_Name = debug", f"Job_Name = {name}").encode()


def test_find_knows_only_our_own_unfinished_jobs_of_that_exact_name() -> None:
    me = b"Welcome!\ntk-user alice\n"
    [job] = PBS().parse_find(done(me + found()), "debug")
    assert job.job_id == "14.login"
    assert PBS().parse_find(done(me + found(owner="bob@login")), "debug") == []
    assert PBS().parse_find(done(me + found(name="debug2")), "debug") == []
    assert PBS().parse_find(done(me + found(case="after-qdel-running")), "debug") == []
    assert PBS().parse_find(done(me), "debug") == []
    queued = found(case="qstat-queued-json")
    assert [one.job_id for one in PBS().parse_find(done(me + queued), "waits")] == ["17.login"]


def test_find_without_an_answer_is_not_taken_for_nothing() -> None:
    with pytest.raises(SchedulerError) as caught:
        PBS().parse_find(done(), "debug")
    assert caught.value.transient


def test_find_bears_a_job_that_ended_meanwhile() -> None:
    me = b"tk-user alice\n"
    assert PBS().parse_find(done(me, answer("qdel-unknown-job").stderr, 153), "debug") == []


def test_cancel_of_what_is_over_is_fine() -> None:
    PBS().parse_cancel(done())
    PBS().parse_cancel(answer("qdel-unknown-job"))
    PBS().parse_cancel(done(stderr=b"qdel: Job has finished 30.login\n", code=35))
    Torque().parse_cancel(
        done(stderr=b"qdel: Request invalid for state of job MSG=invalid state for job - "
             b"COMPLETE 7.server\n", code=170)
    )  # fmt: skip
    with pytest.raises(SchedulerError):
        PBS().parse_cancel(done(stderr=b"qdel: Unauthorized Request 1.login\n", code=159))
    with pytest.raises(SchedulerError) as caught:
        PBS().parse_cancel(
            done(stderr=b"qdel: Server could not connect to MOM 0.login\n", code=222)
        )
    assert "qdel -W force" in (caught.value.hint or "")


def test_estimate() -> None:
    assert PBS().parse_estimate(as_text("qstat-queued-json")) is None
    text = as_text("qstat-queued-json").text
    for told, wanted in (("Sat Nov 21 09:00:00 2026",) * 2, ("UNKNOWN", None)):
        line = f"    comment = x\n    estimated.start_time = {told}\n"
        one = text.replace("    project =", line + "    project =")
        assert PBS().parse_estimate(done(one.encode())) == wanted
        assert ask(done(one.encode()), "17.login").start_estimate == wanted


# --- nodes and numbers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exec_host", "nodes"),
    [
        ("node4/0*2+node5/1*2", ("node4", "node5")),
        ("node4/0+node4/1", ("node4",)),
        ("node4/0-1", ("node4",)),
        ("n2/0-3,6+n1/0", ("n2", "n1")),
        ("node4.example.org:15002/0*2", ("node4.example.org",)),
        ("", ()),
    ],
)
def test_nodes(exec_host: str, nodes: tuple[str, ...]) -> None:
    assert nodes_of(exec_host) == nodes


@pytest.mark.parametrize("exec_host", ["-oProxyCommand=x/0", "a b/0", "+", "node1/0+"])
def test_what_is_no_node_is_refused(exec_host: str) -> None:
    with pytest.raises(SchedulerError):
        nodes_of(exec_host)


def test_seconds() -> None:
    assert seconds("00:10:00") == 600
    assert seconds("120:00:01") == 432001
    assert seconds("90") == 90
    assert seconds("banana") is None


def test_a_dependency_is_named_instead_of_the_hold() -> None:
    lines = "Job Id: 7.x\n    job_state = H\n    Hold_Types = s\n    depend = afterany:6.x@x\n"
    assert ask(done(lines.encode()), "7.x").explanation == "waiting for job 6.x to end"


@pytest.mark.parametrize(
    ("scheduler", "attaching"),
    [(PBS(), '"$attach" -j "$job" -p $$'), (Torque(), '"$attach" -j "$job" -a $$')],
    ids=["pbs", "torque"],
)
def test_a_step_is_attached_by_the_dialects_program(scheduler: Qstat, attaching: str) -> None:
    argv = scheduler.step("14.login", "node2", ["sh", "x"])
    assert argv[:2] == ["sh", "-c"] and attaching in argv[2]
    assert argv[4:] == ["14", "14.login", "sh", "x"]
    with pytest.raises(UsageError):
        scheduler.step("14;rm", "node2", [])
