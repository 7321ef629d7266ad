"""Jobs that do not move: stopped, their storage gone, or hanging."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.window import NodeWindow, PlaceView, ProcessView
from tunnelkit.diagnosis.running import debugged, hang_places
from tunnelkit.diagnosis.running.look import Look, main_thread, percent
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

_MOST_OF_THE_TIME = 0.9
_FEW_SAMPLES = 8
#: A thread that used more of a core than this did something.
_RAN = 0.01
#: A main thread waits for another thread or process, without a limit of time.
_FOR_OTHERS = frozenset({"futex", "pipe", "receive", "read", "write", "nfs", "lustre", "fuse"})
#: It may wait like this for as long as it likes.
_BY_ITSELF = frozenset(
    {"sleep", "poll-timed", "futex-timed", "accept", "terminal", "pause", "poll", "child"}
)
_NOT_STORAGE = frozenset({"gpu-driver", "swap", "stopped"})
_REAL = "statvfs in a process of its own"


_Row = tuple[NodeWindow, ProcessView]


def stopped(look: Look) -> Verdict | None:
    """A stopped process (T), a debugger, a frozen cgroup, or a job that is suspended.

    Nothing for a stopped process beside others that run, such as an editor after Ctrl-Z."""
    if look.job.suspended:
        return Verdict(
            "stopped",
            "is suspended by the scheduler",
            Certainty.PROVEN,
            (Evidence(f"state {look.job.native_state}", "the scheduler's record"),),
            next_steps=(NextStep("ask the administrator why, and until when"),),
        )
    for window in look.windows:
        if window.frozen:
            return Verdict(
                "stopped",
                f"is frozen{look.where(window)}: its cgroup does not let it run",
                Certainty.PROVEN,
                (Evidence("the job's cgroup is FROZEN", "cgroup freezer"),),
                next_steps=(
                    NextStep("ask the administrator: the scheduler freezes suspended jobs"),
                ),
            )
    found = [
        (window, one)
        for window, one in look.processes()
        if (thread := main_thread(window, one)) is not None
        and sum(thread.states.values()) >= _FEW_SAMPLES
        and thread.share("Tt") >= _MOST_OF_THE_TIME
    ]
    holding = [row for row in found if not _others_run(look, row, found)]
    return _stopped_processes(look, holding) if holding else None


def _others_run(look: Look, stopped: _Row, found: list[_Row]) -> bool:
    """True if another program runs. One of another rank may spin as it waits for this one."""
    rank = stopped[1].rank if look.has_ranks else None
    return any(
        one.run + one.children > debugged.STANDS
        for window, one in look.programs()
        if (window, one) not in found and (rank is None or one.rank in (None, rank))
    )


def _stopped_processes(look: Look, found: list[_Row]) -> Verdict:
    window, first = found[0]
    traced = [one for _, one in found if one.traced]
    many = f"{len(found)} processes are" if len(found) > 1 else f"{look.who(window, first)} is"
    how = "stopped under a debugger" if traced else "stopped by a signal (SIGSTOP, Ctrl-Z)"
    pids = " ".join(str(one.pid) for _, one in found[:8])
    return Verdict(
        "stopped",
        f"does not go on: {many} {how}",
        Certainty.PROVEN,
        (Evidence(f"state T in all samples: pid {pids}", "/proc/PID/stat"),),
        next_steps=(
            NextStep("end or continue the debugger")
            if traced
            else NextStep(f"let it go on, on {window.node}", f"kill -CONT {pids}"),
        ),
    )


def storage_gone(look: Look) -> Verdict | None:
    """A file system without an answer that the job waits for, or threads in D with no operation
    of its completed."""
    held = _held(look)
    for window, place in _silent(look):
        waits = [share for at, one, share in held if at is window and place.path in one.mounts]
        if waits or stands(look):
            because = [Evidence(f"no answer of {place.path} within 3 s", _REAL)]
            if waits:
                text = f"a thread waits in the kernel (D) in {percent(waits[0])} of the samples"
                because.append(Evidence(text, "/proc/PID/task/TID/stat"))
            return _gone(look, window, place, Certainty.PROVEN, *because)
    for window, one, share in held:
        # "/" is where the programs are; it says least.
        places = sorted(
            (place for place in window.places if place.path in one.mounts and place.ops == 0),
            key=lambda place: place.path == "/",
        )
        if not places:
            continue
        place = places[0]
        frozen = any(
            thread.waits_for == "frozen" for thread in window.threads if thread.pid == one.pid
        )
        more = " (it is frozen, as by fsfreeze or a snapshot)" if frozen else ""
        return _gone(
            look,
            window,
            place,
            Certainty.LIKELY,
            Evidence(
                f"{look.who(window, one)} waits in the kernel (D) in {percent(share)} of the "
                f"samples{more}",
                "/proc/PID/task/TID/stat",
            ),
            Evidence(
                f"{place.path} completed 0 operations in {window.seconds:.0f} s", _counter(place)
            ),
        )
    return None


def storage_silent(look: Look) -> Verdict | None:
    """A file system without an answer, while the job goes on: it may do so without it."""
    for window, place in _silent(look):
        return Verdict(
            "storage-gone",
            f"goes on, but {_named(place)} does not answer on {window.node}",
            Certainty.LIKELY,
            (
                Evidence(f"no answer of {place.path} within 3 s", _REAL),
                Evidence(f"CPU {percent(look.run)} of a core", "/proc/PID/task/TID/schedstat"),
            ),
            next_steps=(NextStep("ask again in a minute", f"tk why {look.job.job_id}"),),
        )
    return None


def _silent(look: Look) -> list[tuple[NodeWindow, PlaceView]]:
    return [(each, place) for each in look.windows for place in each.places if not place.answers]


def _held(look: Look) -> list[tuple[NodeWindow, ProcessView, float]]:
    """Return processes with threads that the kernel holds, and in which share of the samples."""
    found = []
    for window, one in look.processes():
        held = [
            thread
            for thread in window.threads
            if thread.pid == one.pid
            and sum(thread.states.values()) >= _FEW_SAMPLES
            and thread.share("D") >= _MOST_OF_THE_TIME
            and thread.waits_for not in _NOT_STORAGE
        ]
        if held:
            found.append((window, one, held[0].share("D")))
    return found


def _gone(
    look: Look, window: NodeWindow, place: PlaceView, certainty: Certainty, *because: Evidence
) -> Verdict:
    return Verdict(
        "storage-gone",
        f"stands still: {_named(place)} does not answer on {window.node}",
        certainty,
        because,
        next_steps=(
            NextStep("tell the administrator; the program goes on once the storage answers"),
            NextStep("else end the job, and leave that node out", f"scancel {look.job.job_id}")
            if look.job.job_id.replace("_", "").isdigit()
            else NextStep("else end the job, and leave that node out"),
        ),
    )


def _named(place: PlaceView) -> str:
    source = f", {place.source}" if place.source else ""
    return f"{place.path} ({place.kind}{source})"


def _counter(place: PlaceView) -> str:
    return "/proc/self/mountstats" if place.nfs is not None else "/sys/dev/block/*/stat"


def stands(look: Look, ran: float = _RAN) -> bool:
    """True if nothing of the job moves. ran: of a core on each node, at most."""
    return look.run <= ran * max(1, len(look.windows)) and not _something_moves(look)


def hang(look: Look) -> Verdict | None:
    """No thread runs, no GPU works, no log grows, and programs wait for others without end; or
    for a user, as far as that is known."""
    if stands(look, debugged.STANDS) and (found := debugged.debugger_loaded(look)):
        return found
    return (debugged.waits_for_input(look) or _hangs(look)) if stands(look) else None


def _hangs(look: Look) -> Verdict | None:
    waits = []
    for window, one in look.leaves():
        thread = main_thread(window, one)
        word = thread.waits_for if thread is not None else ""
        # Its stdin is a pipe from another program of the job.
        word = "pipe" if word == "stdin" else word
        if word in _BY_ITSELF and word != "child":
            return None
        if word in _FOR_OTHERS and thread is not None and one.run + one.children <= _RAN:
            waits.append((window, one, word))
    if not waits:
        return None
    window, one, _ = waits[0]
    threads = sum(window.thread_count for window in look.windows)
    at = hang_places.sentence(look, waits)
    return Verdict(
        "hang",
        f"stands still: none of its {threads} threads ran in {window.seconds:.0f} s"
        + (f"; {at}" if at else ""),
        Certainty.LIKELY,
        (
            Evidence(f"CPU {percent(look.run)} of a core", "/proc/PID/task/TID/schedstat"),
            *hang_places.lines(look, waits),
            *_quiet(look),
        ),
        next_steps=(
            NextStep("in a session, see where each rank waits", "tk ranks --native"),
            NextStep(f"the stack of one process, on {window.node}", f"py-spy dump --pid {one.pid}"),
        ),
    )


def _something_moves(look: Look) -> bool:
    moving = any(window.log_grew for window in look.windows)
    working = any(max(gpu.busy, default=0) > 0 for _, gpu in look.gpus())
    reading = any(
        one.io is not None and one.io.read_bytes + one.io.written_bytes > 0
        for _, one in look.programs()
    )
    new = any(one.is_new for _, one in look.programs())
    return moving or working or reading or new


def _quiet(look: Look) -> tuple[Evidence, ...]:
    found = []
    if any(window.log_grew is False for window in look.windows):
        found.append(Evidence("its log did not grow", "stat of stdout and stderr"))
    gpus = look.gpus()
    if gpus:
        found.append(Evidence(f"0 % busy: {len(gpus)} GPUs", gpus[0][0].gpu_source))
    return tuple(found)
