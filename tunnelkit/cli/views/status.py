"""The output of `tk status`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunnelkit import __version__
from tunnelkit.cli.terminal import kept_notice
from tunnelkit.cli.terminal.context import find_session
from tunnelkit.cli.terminal.output import paint, say
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import Status
from tunnelkit.text_format import human_bytes, shown

if TYPE_CHECKING:
    from tunnelkit.debug.loop_status import LoopStatus
    from tunnelkit.mirror.progress import ProgressInfo
    from tunnelkit.mount.mounts import MountStatus
    from tunnelkit.session.runtime.status import JobInfo, MirrorInfo, SessionStatus

#: Number of pending paths that are named.
_NAMED = 3


def show_status(*, as_json: bool = False) -> None:
    """Print what is up. Raises NoSessionError if nothing is."""
    status = ask(find_session(), Status())
    kept = [] if as_json else [f"kept     {line}" for line in kept_notice.lines()]
    say(json.dumps(status, indent=2) if as_json else "\n".join([*lines(status), *kept]))


def lines(status: SessionStatus) -> list[str]:
    """Return the status as lines of text. Names of the far side can't make one of their own."""
    colour = {"ready": "green", "ended": "red", "failed": "red"}.get(status["state"], "yellow")
    state = paint(shown(status["state"]), colour)
    out = [
        f"session  {state} {shown(status['detail'] or '')}".rstrip(),
        f"project  {printable(status['project'])}",
    ]
    if mismatch := other_version(status):
        out.append(paint(shown(mismatch), "yellow"))
    if status.get("attention"):
        out.append(paint("waiting  for you: tk auth", "yellow"))
    in_pods = status.get("scheduler") == "kubernetes"
    out.append(f"{'cluster' if in_pods else 'login':<8} {shown(status['login'])}")
    job = status["job"]
    if job:
        left = job["time_left_s"]
        time_left = f", {hours(left)} left" if left is not None else ""
        if left is not None and job.get("time_is_near"):
            time_left = paint(time_left, "red")
        yours = ", adopted: tk down leaves it" if job.get("made_by") == "you" else ""
        how = "replaced" if in_pods else "requeued"
        back = f", {how} {job['requeues']}x" if job.get("requeues") else ""
        where = f"on {', '.join(job['nodes'])}" if job["nodes"] else _queued(job)
        name = f"{'pods' if in_pods else 'job':<8} {shown(job['id'])}"
        out.append(f"{name} {shown(where)}{time_left}{yours}{back}")
    return out + [shown(line) for line in _plain_lines(status)]


def _plain_lines(status: SessionStatus) -> list[str]:
    """Return the lines without colours: agents, mirrors, loops, forwards and mounts."""
    out = []
    if status["agent"]:
        agent = status["agent"]
        gpus = agent.get("cuda_visible_devices")
        out.append(
            f"node     {agent['node']} by {status['route'] or 'ssh'}"
            + (f", CUDA_VISIBLE_DEVICES={gpus}" if gpus is not None else "")
        )
    for other in status.get("other_nodes") or []:
        agent_there = f"agent {other['agent']}" if other["agent"] else "no agent yet"
        has = other["why_not"] or agent_there
        out.append(f"node     {other['node']}, {has}")
    out += _mirror_lines(status.get("mirrors") or list(filter(None, [status["mirror"]])))
    for loop in status["loops"]:
        out += [_loop_line(loop), *_rank_lines(loop), *_standby_lines(loop)]
    if not status["loops"]:
        out.append(f"loop     none; F5 port 127.0.0.1:{status['debug_port']}")
    for forward in status["forwards"]:
        is_lost = forward["route"] == "lost"
        how = ", not in place now" if is_lost else f" by {forward['route']}"
        out.append(f"forward  {forward['forward']}{how}")
    out += [_mount_line(one) for one in status.get("mounts") or []]
    return out


def _mirror_lines(mirrors: Sequence[MirrorInfo]) -> list[str]:
    """Return a line for each mirror; pods where all is as in the first one are only counted."""
    of_pods = (one for one in mirrors if one.get("node") and one["state"] == "in_sync")
    same = Counter(one.get("root") for one in of_pods)
    out = []
    for mirror in mirrors:
        node = mirror.get("node")
        if node and mirror["state"] == "in_sync":
            continue
        names = [printable(name) for name in (node, mirror.get("root")) if name]
        count = 0 if node else same[mirror.get("root")]
        also = f", the same in {count} more pod{'s' * (count > 1)}" if count else ""
        state = ": ".join([*names, mirror_state(mirror)])
        out.append(f"mirror   {state} -> {printable(mirror['remote'])}{also}")
        out += [f"  warning: {printable(text)}" for text in mirror["warnings"]]
    return out


def _queued(job: JobInfo) -> str:
    start = job.get("start_estimate")
    return "has no node yet" + (f", may start {start} (the cluster's clock)" if start else "")


def other_version(status: SessionStatus) -> str | None:
    """Return a line if another version of tk started the session; else None."""
    started_by = status.get("version")
    if started_by in (None, __version__):
        return None
    return (
        f"this session was started by tk {started_by}, this is tk {__version__}: "
        "`tk down && tk up` starts it with this one"
    )


def _mount_line(mount: MountStatus) -> str:
    where = f"{printable(mount['mountpoint'])} <- {mount['host']}:{printable(mount['remote'])}"
    return f"mount    {where}" + ("" if mount["state"] == "ok" else f", {mount['state']}")


def mirror_state(mirror: MirrorInfo) -> str:
    """Return a mirror's state in words: pending paths by name, a big transfer with its progress."""
    progress = mirror["progress"]
    if progress is not None and mirror["state"] in ("starting", "pending"):
        return sending(progress)
    text = printable(mirror["text"])
    if mirror["state"] == "pending" and not mirror["reason"]:
        paths = [printable(path) for path in mirror["pending_paths"][:_NAMED]]
        more = mirror["pending"] - len(paths)
        text += f": {', '.join(paths)}" + (f" and {more} more" if more > 0 else "")
    return f"{text}; {mirror['files']} files ({human_bytes(mirror['bytes'])})"


def sending(progress: ProgressInfo) -> str:
    """Return the progress of a big transfer in words."""
    eta = progress["eta_s"]
    left = f", {hours(round(eta))} left" if eta is not None else ""
    return (
        f"sending: {progress['files']} of {progress['files_total']} files, "
        f"{human_bytes(progress['bytes'])} of {human_bytes(progress['bytes_total'])}{left}"
    )


def printable(text: str) -> str:
    """Return a path as it is, or quoted if it has control characters."""
    return text if text.isprintable() else repr(text)


def _loop_line(loop: LoopStatus) -> str:
    editor = f", {loop['editor']} attached" if loop["editor"] else ""
    command = loop["command"]
    state = loop["state"]
    kept = loop.get("kept")
    if kept:
        state = f"kept at {kept['error']} ({kept['where']}): press F5"
    return (
        f"loop     #{loop['generation']} {state}{editor}, "
        f"F5 port 127.0.0.1:{loop['port']}: {command}"
    )


def _rank_lines(loop: LoopStatus) -> list[str]:
    """Return a line for each rank: node, pid, port and editor."""
    return [
        f"  rank {one['rank']} on {one['node']}, pid {one['pid']}"
        + (f", F5 port {one['port']}" if one["port"] else "")
        + (", over" if one["over"] else f", {one['editor']} attached" if one["editor"] else "")
        for one in sorted(loop.get("ranks") or [], key=lambda one: one["rank"] or 0)
    ]


def _standby_lines(loop: LoopStatus) -> list[str]:
    """Return a line on the memory of the debuggee that stands by."""
    standby = loop.get("standby")
    if not standby:
        return []
    costs = ""
    if standby.get("rss_bytes"):
        costs = f": {_mib(standby['rss_bytes'])}"
        if standby.get("share_bytes"):
            costs += f", its share of that {_mib(standby['share_bytes'])}"
    return [f"standby  the next run (pid {standby.get('pid')}){costs}"]


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"


def hours(seconds: int) -> str:
    """Return seconds as h:mm:ss."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
