"""The verdict on a waiting job of Slurm where the reason alone decides.

Where the state of the nodes decides (Resources, Priority, PartitionConfig, ...), there is none:
the rules of the nodes judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from tunnelkit.diagnosis.evidence.cluster import ClusterView, Window
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting import commands
from tunnelkit.diagnosis.waiting.reasons.by_dependency import judge_dependency
from tunnelkit.diagnosis.waiting.reasons.by_limit import judge_limit
from tunnelkit.diagnosis.waiting.reasons.time_words import span
from tunnelkit.diagnosis.waiting.slurm_reasons import Reason, reason_of

Rule = Callable[[JobView, ClusterView, float, Reason], Verdict]
_PREPARING = ("CONFIGURING", "POWER_UP_NODE")
_LONG_S = 300.0
_NEVER = "can never start"
_SHOW_ASSOC = "sacctmgr show assoc user=$USER format=account,partition,qos%40"


def judge_reason(job: JobView, cluster: ClusterView, now_s: float) -> Verdict | None:
    """Return the verdict if the job's reason decides alone, else None.

    None, too, for a reason that is not Slurm's. now_s: Unix time, by the cluster's clock."""
    reason = reason_of(job.reason)
    if job.native_state in _PREPARING:
        return _preparing(job, cluster, now_s, reason)
    if job.native_state == "RESV_DEL_HOLD" and reason.code == "not-looked":
        reason = reason_of("ReservationDeleted")
    if job.native_state == "COMPLETING" and reason.code == "not-looked":
        reason = reason_of("Cleaning")
    if reason.by_nodes or not reason.known:
        return None
    return _RULES.get(reason.code, _plain)(job, cluster, now_s, reason)


def judge_by_word(job: JobView) -> Verdict:
    """Return what the reason alone makes likely, where nodes or queue are not known."""
    verdict = _plain(job, ClusterView(), 0.0, reason_of(job.reason))
    known = verdict.code != "waiting-unknown"
    return replace(verdict, certainty=Certainty.LIKELY if known else Certainty.UNKNOWN)


def _because(job: JobView, *more: Evidence) -> tuple[Evidence, ...]:
    text = f"reason {job.reason}" if job.reason else f"no reason, state {job.native_state}"
    return (Evidence(text, "scontrol show job"), *more)


def _plain(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    steps = {
        "not-looked": (NextStep("ask again in a minute", f"tk why {job.job_id}"),),
        "never": (NextStep("cancel it, and ask for what can be", commands.cancel(job)),),
        "shared-busy": (NextStep("wait until other jobs give it back"),),
        "nodes-down": (NextStep("see what is down, and why", "sinfo -R"),),
    }.get(reason.code, ())
    words = reason.sentence.replace("JOBID", job.job_id)
    begin = "" if words.startswith("waiting") else ": "
    sentence = f"waits{begin}{words.removeprefix('waiting')}"
    certainty = Certainty.UNKNOWN if reason.code == "not-looked" else Certainty.PROVEN
    return Verdict(reason.code, sentence, certainty, _because(job), next_steps=steps)


def _held_you(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    ran = _ran_before(job)
    again = " after it ran before" if ran else ""
    steps = (NextStep("free it", commands.release(job)),)
    sentence = f"is held{again}, by you or a coordinator of its account: you can release it"
    return Verdict("held-you", sentence, Certainty.PROVEN, _because(job, *ran), next_steps=steps)


def _held_admin(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    sentence = "is held by an administrator: only an administrator can release it"
    if not (job.reason or "").startswith("JobHeldAdmin"):
        sentence = f"is held: {reason.sentence}; only an administrator can release it"
    step = NextStep(f"ask the administrator why, and to release it: scontrol release {job.job_id}")
    return Verdict("held-admin", sentence, Certainty.PROVEN, _because(job), next_steps=(step,))


def _launch_failed(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    words = reason.sentence.partition(": scontrol")[0]
    words = words.replace(", and the job is held", "").replace(" and is held", "")
    steps = (
        NextStep("see which node was drained, and why", "sinfo -R"),
        NextStep("leave that node out", commands.update(job, "excnodelist=NODE")),
        NextStep("then let it start again", commands.release(job)),
    )
    because = _because(job, *_ran_before(job))
    return Verdict(
        "launch-failed", f"is held: {words}", Certainty.PROVEN, because, next_steps=steps
    )


def _begin(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    if job.restarts > 0 and not job.repeats:  # a repeating job's runs count as restarts
        return _requeued(job, cluster, now_s, reason)
    what = "next time, as its crontab says" if job.repeats else "begin time"
    begins = [one for one in (job.eligible_s, job.expected_start_s) if one and one > now_s]
    if not begins:
        sentence = f"waits for its {what}, which has come: it starts in a moment"
        return Verdict("begin", sentence, Certainty.LIKELY, _because(job))
    start_s = max(begins)
    sentence = f"waits for its {what}, in {span(start_s - now_s)}"
    label = "its next time (scrontab)" if job.repeats else "its begin time (--begin)"
    when = Evidence(label, "scontrol show job", "begins", start_s)
    at_once = NextStep("start it at once", commands.update(job, "starttime=now"))
    # Slurm lets nobody change a repeating job but by its crontab.
    steps = (NextStep("see its times", "scrontab -l") if job.repeats else at_once,)
    return Verdict("begin", sentence, Certainty.PROVEN, _because(job, when), next_steps=steps)


def _requeued(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    sentence = "is in the queue again after it ran before"
    if reason.code == "begin":
        sentence = (
            "is in the queue again: it was preempted, its node failed, or somebody requeued it"
        )
    elif reason.code == "requeued":
        detail = reason.sentence.partition("its run before ")[2]
        sentence = f"is in the queue again: its run before {detail}"
    begins = [one for one in (job.eligible_s, job.expected_start_s) if one and one > now_s]
    if begins:
        sentence += f"; it starts not before {span(max(begins) - now_s)} from now"
    log = f"tail -n 3 {job.stdout_path}" if _is_plain(job.stdout_path) else ""
    steps = (NextStep("the last lines of its log say which it was", log),)
    certainty = Certainty.PROVEN if job.restarts > 0 else Certainty.LIKELY
    because = _because(job, *_ran_before(job))
    return Verdict("requeued", sentence, certainty, because, next_steps=steps)


def _ran_before(job: JobView) -> tuple[Evidence, ...]:
    if job.restarts <= 0:
        return ()
    times = "once" if job.restarts == 1 else f"{job.restarts} times"
    return (Evidence(f"Slurm restarted it {times}", "scontrol show job", "restarts"),)


def _is_plain(path: str) -> bool:
    return bool(path) and all(one.isalnum() or one in "/._-+%@" for one in path)


def _preparing(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    since_s = job.start_s or job.expected_start_s
    since, steps = "", (NextStep("wait: it starts when the nodes are ready"),)
    if since_s is not None and since_s <= now_s:
        since = f", for {span(now_s - since_s)} now"
        if now_s - since_s > _LONG_S:
            steps = (NextStep("this takes long: ask the administrator to look at its nodes"),)
    what = reason.sentence if reason.code == "preparing" else "its nodes are being made ready"
    nodes = job.nodes or job.expected_nodes
    more = (Evidence(", ".join(nodes[:5]), "scontrol show job", "nodes"),) if nodes else ()
    sentence = f"is about to start: {what}{since}"
    return Verdict("preparing", sentence, Certainty.PROVEN, _because(job, *more), next_steps=steps)


def _window(job: JobView, cluster: ClusterView) -> Window | None:
    names = job.reservation.split(",")
    found = [one for one in cluster.windows if one.name in names]
    return min(found, key=lambda one: one.start_s) if found else None


def _reservation(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    window = _window(job, cluster)
    name = f"reservation {job.reservation}" if job.reservation else "its reservation"
    shows = f"scontrol show reservation {job.reservation}".strip()
    steps = (NextStep("see it", shows), NextStep("leave it", commands.update(job, "reservation=")))
    if window is None:
        sentence = f"waits for {name}: to begin, or for nodes of it to become free"
        because, certainty = _because(job), Certainty.PROVEN
    else:
        when = Evidence(f"{window.name} of {len(window.nodes)} nodes", "scontrol show reservation",
                        "begins", window.start_s)  # fmt: skip
        because, certainty = _because(job, when), Certainty.PROVEN
        if window.start_s > now_s:
            sentence = f"waits for reservation {window.name} to begin, in "
            sentence += span(window.start_s - now_s)
        elif window.end_s <= now_s:
            sentence, certainty = f"waits for reservation {window.name}, which is over", _likely()
        else:
            sentence = f"waits for nodes of reservation {window.name}, which has begun"
            certainty = _likely()
    return Verdict("reservation", sentence, certainty, because, next_steps=steps)


def _likely() -> Certainty:
    return Certainty.LIKELY


def _reservation_gone(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    sentence = f"can never start: {reason.sentence}"
    if job.reservation and job.reservation not in sentence:
        sentence += f" ({job.reservation})"
    steps = (
        NextStep("take it out of the reservation", commands.update(job, "reservation=")),
        NextStep("then free it", commands.release(job)),
        NextStep("or cancel it", commands.cancel(job)),
    )
    return Verdict("reservation-gone", sentence, Certainty.PROVEN, _because(job), next_steps=steps)


def _licenses(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    what = f"licences to become free: {job.licenses}" if job.licenses else "a licence"
    steps = (NextStep("see who has them and how many there are", "scontrol show licenses"),)
    return Verdict(
        "licenses", f"waits for {what}", Certainty.PROVEN, _because(job), next_steps=steps
    )


def _array(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    array = job.job_id.partition("_")[0]
    command = f"scontrol update jobid={array} arraytaskthrottle=N"
    steps = (NextStep("let more tasks run at once (0: no limit)", command),)
    sentence = "waits for the limit of its own array: as many of its tasks run as %N allows"
    return Verdict("limit-array", sentence, Certainty.PROVEN, _because(job), next_steps=steps)


def _refused(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    names = [("account", job.account), ("QOS", job.qos), ("partition", job.partition)]
    asks = ", ".join(f"{label} {name}" for label, name in names if name)
    more = Evidence(asks, "scontrol show job", "asks for")
    steps = (
        NextStep("see what you may use", _SHOW_ASSOC),
        NextStep("change it", commands.update(job, "account=NAME qos=NAME partition=NAME")),
    )
    sentence = f"can never start as it was asked for: {reason.sentence}"
    because = _because(job, more) if asks else _because(job)
    found = Verdict("refused", sentence, Certainty.PROVEN, because, next_steps=steps)
    return _of_one_partition(job, found)


def partitions_down(job: JobView, cluster: ClusterView) -> tuple[str, ...]:
    """Return those of the job's partitions that are known to be switched off."""
    down = {one.name for one in cluster.partitions if not one.up}
    return tuple(name for name in job.partition.split(",") if name in down)


def _partition_down(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    """Return the verdict; Slurm says so of a job of several partitions for each one alone."""
    name = f"partition {job.partition}" if job.partition else "its partition"
    state = "INACTIVE" if "Inactive" in (job.reason or "") else "DOWN"
    what, certainty = f"{name} is switched off (state {state}), and starts", Certainty.PROVEN
    names, down = job.partition.split(","), partitions_down(job, cluster)
    if len(names) > 1 and len(down) == len(names):
        what = f"its partitions {', '.join(names)} are switched off, and start"
    elif len(names) > 1:
        one = f"one of its partitions ({', '.join(names)})"
        what = f"{', '.join(down)}, {one}," if len(down) == 1 else one
        what, certainty = f"{what} is switched off, and starts", Certainty.LIKELY
    steps = (
        NextStep("see the partitions", "sinfo -s"),
        NextStep("take another", commands.update(job, "partition=NAME")),
    )
    sentence = f"waits: {what} no job"
    return Verdict("partition-down", sentence, certainty, _because(job), next_steps=steps)


def _limit(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    if reason.limit is None and reason.code == "limit-job":
        return _of_one_partition(job, _partition_limit(job, reason))
    return _of_one_partition(job, judge_limit(job, cluster, now_s, reason))


def _of_one_partition(job: JobView, found: Verdict) -> Verdict:
    """Return at most likely for a job of several partitions: Slurm's reason is the last tried
    one's, and the job may wait in another."""
    if "," not in job.partition:
        return found
    sentence, steps = found.sentence, found.next_steps
    if sentence.startswith(_NEVER):
        where = f"one of its partitions ({job.partition.replace(',', ', ')})"
        sentence = f"{_NEVER} in {where}:{sentence.partition(':')[2]}"
        leave = NextStep("leave that partition out", commands.update(job, "partition=NAME"))
        steps = (leave, *steps)
    sure = found.certainty is Certainty.PROVEN
    certainty = Certainty.LIKELY if sure else found.certainty
    return replace(found, sentence=sentence, certainty=certainty, next_steps=steps)


def _partition_limit(job: JobView, reason: Reason) -> Verdict:
    """Return the verdict on a job that is over the partition's time or memory."""
    one = "" if "," in job.partition else job.partition
    steps = [NextStep("see the limits", f"scontrol show partition {one}".strip())]
    if "time" in reason.sentence:
        steps.append(
            NextStep("shorten it, keeping its place", commands.update(job, "timelimit=TIME"))
        )
    steps.append(NextStep("or cancel it", commands.cancel(job)))
    sentence = f"{_NEVER} in partition {job.partition or '?'}: {reason.sentence}"
    return Verdict("limit-job", sentence, Certainty.PROVEN, _because(job), next_steps=tuple(steps))


_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "held-you": _held_you,
        "held-admin": _held_admin,
        "launch-failed": _launch_failed,
        "begin": _begin,
        "requeued": _requeued,
        "preparing": _preparing,
        "reservation": _reservation,
        "reservation-gone": _reservation_gone,
        "licenses": _licenses,
        "limit-array": _array,
        "refused": _refused,
        "partition-down": _partition_down,
        "dependency": judge_dependency,
        "dependency-never": judge_dependency,
        "limit-account": _limit,
        "limit-qos": _limit,
        "limit-user": _limit,
        "limit-job": _limit,
        "budget": _limit,
    }
)
