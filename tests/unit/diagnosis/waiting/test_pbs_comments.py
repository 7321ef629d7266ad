"""Every comment that OpenPBS's scheduler and server write has a sentence, an actor, a next step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.evidence.cluster import ClusterView, GpuCount, Limit, NodeView
from tunnelkit.diagnosis.evidence.job import GpuNeed, JobView, NodeNeed
from tunnelkit.diagnosis.verdict import Actor, Certainty, Verdict
from tunnelkit.diagnosis.waiting.pbs.comments import judge_comment, read_comment
from tunnelkit.diagnosis.waiting.pbs.resources import LIMIT_FORMS
from tunnelkit.diagnosis.waiting.rules import judge_waiting
from tunnelkit.model import JobState

_LINES = (Path(__file__).parents[1] / "data" / "openpbs-comments.txt").read_text().splitlines()
FORMS = [line for line in _LINES if not line.startswith("#")]
#: What PBS fills in, in turn: a name that no form has by itself.
_FILLED = ("ngpus", "workq2", "q3")
NOW_S = 1_795_248_300.0
NOTHING = ClusterView()
JOB = JobView("17.login", JobState.PENDING, "Q", user="alice", partition="workq")


def filled(form: str) -> str:
    if form.startswith("Insufficient"):
        return form % ("ngpus", "(R: 2 A: 0 T: 2)")
    for value in _FILLED:
        form = form.replace("%s", value, 1)
    return form


def verdict(comment: str, cluster: ClusterView = NOTHING, **job: Any) -> Verdict:
    return judge_waiting(replace(JOB, reason=comment, **job), cluster, NOW_S)[0]


def test_the_recorded_list_is_whole() -> None:
    assert len(FORMS) == len(set(FORMS)) > 100


@pytest.mark.parametrize("prefix", ["Not Running: ", "Can Never Run: "])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_a_sentence_an_actor_and_a_next_step(form: str, prefix: str) -> None:
    comment = filled(form)
    if comment.lower().startswith(("job held", "job array held", "job has bad password")):
        found = verdict(f"Hold_Types = {'p' if 'password' in form else 's'}; {comment}",
                        native_state="H")  # fmt: skip
    else:
        reading = read_comment(prefix + comment)
        assert reading is not None and reading.known, comment
        found = verdict(prefix + comment)
    assert isinstance(CODES[found.code].actor, Actor)
    assert found.certainty is not Certainty.UNKNOWN
    assert found.sentence.startswith(("waits", "is ", "can never", "ran "))
    assert "says" not in found.sentence and "{" not in found.sentence
    assert comment.casefold() not in found.sentence.casefold()
    assert found.next_steps and found.next_steps[0].text
    assert all("{" not in one.command for one in found.next_steps)
    assert any(comment in one.text for one in found.because), "the comment itself is evidence"


@pytest.mark.parametrize("form", FORMS)
def test_what_pbs_fills_in_is_named(form: str) -> None:
    if form.startswith(("Job held", "Job Array", "Job run at", "Job was sent", "%s is requesting")):
        return  # names, nodes and times that say nothing more
    comment = filled(form)
    reading = read_comment(f"Not Running: {comment}")
    assert reading is not None
    for value in [one for one in _FILLED if one in comment]:
        words = {"ngpus": ("GPUs", "ngpus")}.get(value, (value,))
        assert any(word in reading.sentence for word in words), (value, reading.sentence)


def test_amounts_are_named_in_readable_sizes() -> None:
    text = "Not Running: Insufficient amount of resource: mem (R: 64gb A: 24684096kb T: 100gb)"
    found = verdict(text)
    assert found.code == "busy" and found.certainty is Certainty.PROVEN
    assert "mem: 64 GB asked for, 23.5 GB free of 100 GB" in found.sentence


@pytest.mark.parametrize(
    ("comment", "code", "words"),
    [
        ("Can Never Run: Insufficient amount of resource: ngpus (R: 9 A: 2 T: 2)", "never",
         "more GPUs than all nodes together have (ngpus: 9 asked for"),
        ("Can Never Run: Insufficient amount of queue resource: ncpus (R: 9 A: 2 T: 4)",
         "limit-job",
         "more CPUs than the queue has"),
        ("Can Never Run: Insufficient amount of resource: host (node99 != node2,node1)", "never",
         "node node99"),
        ("Can Never Run: Not enough total nodes available", "never", "more nodes than there are"),
        ("Can Never Run: Job has zero shares for fairshare", "budget", "0 shares"),
        ("Can Never Run: something new", "never", "something new"),
    ],
)  # fmt: skip
def test_only_pbs_itself_proves_that_a_job_never_runs(comment: str, code: str, words: str) -> None:
    found = verdict(comment)
    assert (found.code, found.certainty) == (code, Certainty.PROVEN)
    assert words in found.sentence and found.sentence.startswith("can never run")
    if code != "budget":
        assert found.next_steps[0].command == "qdel 17.login"
    later = verdict(comment.replace("Can Never Run", "Not Running"))
    if later.code == "never":
        assert later.certainty is Certainty.LIKELY


@pytest.mark.parametrize(
    ("state", "code"),
    [("job-busy", "busy"), ("offline", "nodes-down"), ("provisioning", "preparing"),
     ("maintenance", "nodes-down"), ("job-exclusive", "busy")],
)  # fmt: skip
def test_the_state_of_a_node(state: str, code: str) -> None:
    found = verdict(f"Not Running: Node is in an ineligible state: {state}")
    assert found.code == code and state in found.sentence


def test_a_limit_that_is_reached_is_named_with_its_figure() -> None:
    cluster = ClusterView(
        limits=(
            Limit("queue workq", "max_run", "running jobs of one user", 2, 2),
            Limit("the server", "max_run", "running jobs", 100, 7),
        )
    )
    found = judge_comment(
        replace(JOB, reason="Not Running: User has reached queue workq running job limit."),
        cluster, NOW_S,
    )  # fmt: skip
    assert found is not None and found.code == "limit-user"
    limits = [one.text for one in found.because if one.label == "limit"]
    assert limits == ["queue workq allows 2 running jobs of one user, and 2 run (max_run)"]


def test_an_unknown_comment_is_shown_and_proves_nothing() -> None:
    found = verdict("Not Running: moon phase")
    assert found.code == "waiting-unknown" and found.certainty is Certainty.UNKNOWN
    assert "moon phase" in found.sentence
    assert verdict("Not Running: a limit of the moon").code == "limit-queue"


# --- states ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "job", "code", "words", "command"),
    [
        ("Hold_Types = u", {}, "held-you", "by you", "qrls 17.login"),
        ("Hold_Types = u; Job held by alice on Sat Nov 21", {}, "held-you", "you can", "qrls"),
        ("Hold_Types = u; Job held by root on Sat Nov 21", {}, "held-you", "(root)", "qrls"),
        ("Hold_Types = s; Job held by root on Sat Nov 21", {}, "held-admin", "(root)", ""),
        ("Hold_Types = o", {}, "held-admin", "operator", ""),
        ("Hold_Types = s; Job held by 'quota' hook on Sat", {}, "held-admin", "hook quota", ""),
        ("Hold_Types = s; job held, too many failed attempts to run", {"restarts": 21},
         "launch-failed", "21 times", ""),
        ("Hold_Types = s", {"dependency": "afterok:12.login@login"}, "dependency",
         "job 12.login to end with exit code 0", ""),
        ("Hold_Types = s", {"dependency": "on:2"}, "dependency", "2 other jobs", ""),
        ("Hold_Types = us", {"dependency": "beforeok:12.login@login"}, "held-admin", "", ""),
    ],
)  # fmt: skip
def test_held(reason: str, job: dict[str, Any], code: str, words: str, command: str) -> None:
    found = verdict(reason, native_state="H", **job)
    assert found.code == code and words in found.sentence
    assert command in found.next_steps[0].command


def test_a_begin_time_and_a_job_that_came_back() -> None:
    waits = verdict("", native_state="W", eligible_s=NOW_S + 3000)
    assert (waits.code, waits.certainty) == ("begin", Certainty.PROVEN)
    assert "in 50 min" in waits.sentence
    again = verdict("", restarts=2)
    assert again.code == "requeued"
    assert "2 times" in again.because[-1].text
    new = verdict("", submit_s=NOW_S - 60)
    assert (new.code, new.certainty) == ("not-looked", Certainty.LIKELY)
    old = verdict("", submit_s=NOW_S - 3600)
    assert (old.code, old.certainty) == ("waiting-unknown", Certainty.UNKNOWN)
    assert old.next_steps[0].command == "checkjob 17.login"
    off = verdict("", ClusterView(switched_off=("queue workq is stopped (started = False)",)))
    assert off.code == "partition-down" and "stopped" in off.sentence


# --- nodes -------------------------------------------------------------------------------------


def node(name: str, gpus: int, used: int, *states: str, cpus: int = 8) -> NodeView:
    return NodeView(
        name, frozenset({"workq"}), frozenset(states or ("free",)), cpus, cpus, 64 << 30, 0,
        (GpuCount("", gpus, used),) if gpus else (), frozenset({f"host={name}"}),
        "fan" if "offline" in states else "",
    )  # fmt: skip


TWO_GPUS: dict[str, Any] = {"need": NodeNeed(1, 8 << 30, (GpuNeed(2),))}
NOT_NOW = "Not Running: Insufficient amount of resource: ngpus"


@pytest.mark.parametrize(
    ("nodes", "code", "words"),
    [
        ((node("n1", 2, 1), node("n2", 2, 1)), "fragmented", "on several nodes"),
        ((node("n1", 2, 1), node("n2", 0, 0)), "busy", "become free"),
        ((node("n1", 1, 0), node("n2", 1, 0)), "never", "no node has"),
        ((node("n1", 2, 0, "offline"), node("n2", 1, 0)), "nodes-down", "n1"),
        ((node("n1", 2, 0), node("n2", 2, 2)), "busy", "become free"),
    ],
)
def test_the_nodes_add_what_pbs_does_not_say(
    nodes: tuple[NodeView, ...], code: str, words: str
) -> None:
    found = verdict(NOT_NOW, ClusterView(nodes=nodes), **TWO_GPUS)
    assert found.code == code and words in found.sentence
    assert any(one.text == NOT_NOW for one in found.because)
    if code != "busy":
        assert found.certainty is Certainty.LIKELY, "arithmetic is no proof"


@pytest.mark.parametrize(
    ("asked", "has", "code"),
    [
        ("bigmem=False", "", "busy"),
        ("bigmem=False", "bigmem=False", "busy"),
        ("bigmem=False", "bigmem=True", "never"),
        ("bigmem=True", "", "never"),
        ("gpu_model=a100", "", "never"),
    ],
)
def test_a_boolean_that_a_node_has_not_set_counts_as_false(asked: str, has: str, code: str) -> None:
    full = node("n1", 2, 2)
    full = replace(full, features=full.features | ({has} - {""}))
    need = NodeNeed(1, 8 << 30, (GpuNeed(2),), asked)
    assert verdict(NOT_NOW, ClusterView(nodes=(full,)), need=need).code == code


def vnode(host: str, number: int, gpus: int, used: int, *states: str) -> NodeView:
    of_host = frozenset({f"host={host}", f"vnode={host}[{number}]"})
    return replace(node(f"{host}[{number}]", gpus, used, *states), features=of_host)


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        # One GPU on each socket: PBS takes both for a chunk of two.
        ((vnode("n1", 0, 1, 0), vnode("n1", 1, 1, 1)), "busy"),
        ((vnode("n1", 0, 1, 0), vnode("n1", 1, 1, 0, "offline")), "busy"),
        ((vnode("n1", 0, 1, 0, "offline"), vnode("n1", 1, 1, 0, "offline")), "nodes-down"),
        ((vnode("n1", 0, 1, 0), vnode("n2", 0, 1, 0)), "never"),
    ],
)
def test_the_vnodes_of_one_host_count_together(nodes: tuple[NodeView, ...], code: str) -> None:
    assert verdict(NOT_NOW, ClusterView(nodes=nodes), **TWO_GPUS).code == code


def test_a_named_vnode_counts_alone() -> None:
    nodes = (vnode("n1", 0, 1, 0), vnode("n1", 1, 1, 0))
    by_vnode = verdict(NOT_NOW, ClusterView(nodes=nodes), required_nodes=("n1[0]",), **TWO_GPUS)
    by_host = verdict(NOT_NOW, ClusterView(nodes=nodes), required_nodes=("n1",), **TWO_GPUS)
    assert (by_vnode.code, by_host.code) == ("never", "busy")


def test_a_second_reason_is_said_after_the_first() -> None:
    job = replace(JOB, reason="Not Running: Server job limit has been reached.", **TWO_GPUS)
    first, second = judge_waiting(job, ClusterView(nodes=(node("n1", 1, 0),)), NOW_S)
    assert first.code == "limit-queue"
    assert second.code == "never" and second.sentence.startswith("even then can never run")


def test_a_named_node_and_a_property_that_no_node_has() -> None:
    nodes = ClusterView(nodes=(node("n1", 2, 0),))
    for job in ({"required_nodes": ("n9",)}, {"need": NodeNeed(features="gpu_model=h100")}):
        found = verdict("Not Running: No available resources on nodes", nodes, **job)
        assert found.code == "never" and ("n9" in found.sentence or "h100" in found.sentence)


def test_the_estimate_is_told() -> None:
    found = verdict(NOT_NOW, expected_start_s=NOW_S + 3600, expected_nodes=("n1",))
    assert "in about 60 min on n1" in found.because[-1].text


@given(st.text(max_size=200), st.sampled_from(["", "Not Running: ", "Can Never Run: "]),
       st.sampled_from(["Q", "H", "W", "T"]))  # fmt: skip
def test_any_text_is_judged(text: str, prefix: str, state: str) -> None:
    words = f"Hold_Types = {text[:2] or 's'}; {text}" if state == "H" else prefix + text
    for found in judge_waiting(
        replace(JOB, reason=words, native_state=state, dependency=text), ClusterView(), NOW_S
    ):
        assert found.code in CODES and found.sentence


@given(st.lists(st.sampled_from([*"{}%()!= ", "resource:", "on", "limit", *_FILLED]), max_size=12),
       st.sampled_from([*FORMS, *(one.text for one in LIMIT_FORMS)]))  # fmt: skip
def test_forms_with_odd_values_are_judged(words: list[str], form: str) -> None:
    comment = form.replace("%s", "".join(words))
    assert verdict(f"Not Running: {comment}").sentence
