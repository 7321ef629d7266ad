"""One demo from start to end: the story, what is shown when it fails, and the cleaning up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tunnelkit.demo import leftovers
from tunnelkit.demo.debug_story import DebugStory
from tunnelkit.demo.places import Places, held_port, shell_lines
from tunnelkit.demo.pod_story import PodStory
from tunnelkit.demo.programs import Failed, Tk
from tunnelkit.demo.story import Story
from tunnelkit.demo.timeline import Paint, Timeline
from tunnelkit.errors import ExitCode, TunnelkitError

_TAIL_LINES = 6
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run(*, keep: bool, scheduler: str, kube: bool, out: TextIO, paint: Paint) -> int:
    """Play the demo; returns the exit code. kube: in a pod of a stand-in for Kubernetes.

    Whatever happens, nothing of it is left, but for a success with `keep`: then lab and session
    stay up.
    """
    # It warns of a child whose start was cancelled; that one was reaped all the same.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    show = Timeline(out, paint)
    with held_port() as port, _cancelled_by_signals() as received:
        places = Places.make(port, kube=kube)
        tk = Tk(places.environ(os.environ), places.project)
        code: int | None = None
        try:
            _introduce(show, places)
            story = PodStory(places, tk, show) if kube else Story(places, tk, show, scheduler)
            code = await _play(story, show, places, received, keep=keep)
        finally:
            kept = keep and code == 0
            left = [] if kept else await _clean_up(tk, places)
    if kept:
        _hand_over(show, places)
    elif left:
        show.text(f"left behind: {'; '.join(left)}", "red")
        return code or int(ExitCode.FAILURE)
    elif code == 0:
        _what_next(show, places)
    else:
        show.text("cleaned up: no process, job or file of the demo is left")
    return code


async def _play(
    story: DebugStory, show: Timeline, places: Places, received: list[signal.Signals], *, keep: bool
) -> int:
    """Run the story; show its failure. Returns the exit code."""
    try:
        await story.play()
        if not keep:
            await story.end()
    except (TunnelkitError, OSError, TimeoutError) as error:
        return _show_failure(show, places, error)
    except asyncio.CancelledError:
        if not received:
            raise
        show.text("\ninterrupted: cleaning up ...", "yellow")
        number = received[0]
        return int(ExitCode.INTERRUPTED) if number == signal.SIGINT else 128 + number
    return int(ExitCode.OK)


@contextmanager
def _cancelled_by_signals() -> Iterator[list[signal.Signals]]:
    """The first Ctrl-C (or TERM, HUP) cancels this task; from then on this process ignores them.

    The programs that clean up ignore them, too: a child that was just started is in this one's
    process group for a moment yet, and a Ctrl-C of that moment would end it before its work."""
    received: list[signal.Signals] = []
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def take(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_IGN)

    for number in _SIGNALS:
        loop.add_signal_handler(number, take, number)
    try:
        yield received
    finally:
        if not received:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


async def _clean_up(tk: Tk, places: Places) -> list[str]:
    """End all that is there, by the front door if it opens; returns what could not be ended."""
    seen = leftovers.processes(places)
    session = places.session()
    errors = (TunnelkitError, OSError)
    if session is not None and (session.control_socket.exists() or session.launch.exists()):
        with contextlib.suppress(*errors):
            await tk.run("down", timeout_s=60.0)
    if places.lab.exists() or places.kube:
        with contextlib.suppress(*errors):
            await tk.run("lab", "down", timeout_s=60.0)
    with contextlib.suppress(*errors):
        leftovers.end(places)
    left = await asyncio.to_thread(leftovers.wait_none, places, seen)
    places.remove()
    return [*left, str(places.base)] if places.base.exists() else left


# -- words -----------------------------------------------------------------


def _introduce(show: Timeline, places: Places) -> None:
    show.text("tk demo: debug on a compute node as if it were this machine", "bold")
    parts = "Real sshd, Slurm and debugpy"
    if places.kube:
        parts = "Real kubectl and debugpy, a stand-in for the cluster"
    show.text(f"{parts}, all here, in {places.base}; your settings are not used.")
    show.text("Times: since the start, and of the step.\n", "dim")


def _what_next(show: Timeline, places: Places) -> None:
    show.text(
        f"\nThat was all of it, in {show.elapsed_s:.0f} s. Next, in a project of yours:", "bold"
    )
    once, up = "--login you@login.example.org", "--gpus 1"
    if places.kube:
        once, up = "--kube", "POD"
    show.text(f"  tk init {once:<32}once")
    show.text(f"  tk up {up:<34}whenever you want a node; tk down ends it")
    show.text("  tk loop python train.py                 then press F5, as often as you like")
    show.text(f"Or play with this one first: tk demo{' --kube' if places.kube else ''} --keep")


def _hand_over(show: Timeline, places: Places) -> None:
    show.text(
        f"\nThat was it, in {show.elapsed_s:.0f} s. Cluster, job and mirror stay up; play:", "bold"
    )
    for line in shell_lines(places):
        show.text(f"  {line}")
    show.text("  tk status")
    show.text(f"  tk run env | grep -E '{'TK_|HOME' if places.kube else 'SLURM_JOB_ID|CUDA'}'")
    show.text("  tk loop python -m debugpy --wait-for-client train.py   # then: code . and F5")
    if not places.kube:
        show.text(
            "  tk lab cut; sleep 20; tk lab heal                      # while stopped, if you dare"
        )
    show.text("To end all of it, in the same shell:")
    show.text(f"  tk down; tk lab down; cd; rm -r {places.base}")


def _show_failure(show: Timeline, places: Places, error: Exception) -> int:
    """Show what failed, and the ends of the logs that may explain it. Returns the exit code."""
    known = error if isinstance(error, TunnelkitError) else None
    text = known.one_line() if known else f"{type(error).__name__}: {error}"
    show.done(f"FAILED at: {show.action}", "red")
    show.detail(text, "red")
    session = places.session()
    logs = {
        "what it said": error.log if isinstance(error, Failed) else "",
        "tk loop": _read(places.loop_output),
        "tk loop srun": _read(places.ranks_output),
        "tk logs --session": _read(session.session_log) if session else "",
    }
    for title, log in logs.items():
        lines = log.strip().splitlines()[-_TAIL_LINES:]
        if lines:
            show.text(f"  {title}:", "dim")
        for line in lines:
            show.text(f"    {line}")
    if isinstance(error, Failed):
        return error.status
    return int(known.exit_code) if known else int(ExitCode.FAILURE)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
