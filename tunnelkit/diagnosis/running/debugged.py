"""Jobs that wait for a user: at a breakpoint, or for a line of input."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.stacks import Held, StackView, place, where
from tunnelkit.diagnosis.evidence.window import NodeWindow, ProcessView
from tunnelkit.diagnosis.running.look import Look, main_thread
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

#: A process that uses more of a core is not at a breakpoint. pydevd's threads look at its queues
#: 100 times a second.
STANDS = 0.05
_WORDS = {
    Held.STOPPED: "stands in the debugger (at a breakpoint, a step or a pause)",
    Held.FAILED: "is kept by the debugger at an uncaught exception",
    Held.WAITING: "waits for an editor before its program goes on",
}
_STOPPED = frozenset({Held.STOPPED, Held.FAILED})
_MOST_LINES = 4


def at_breakpoint(look: Look) -> Verdict | None:
    """A debugger holds a process: proven by that debugger, likely by the stack."""
    return _held(look, "at-breakpoint", [one for one in look.stacks if one.held in _STOPPED])


def waits_for_editor(look: Look) -> Verdict | None:
    """A program waits for an editor before it goes on, and nothing else of the job runs."""
    if look.run > STANDS:
        return None
    held = [one for one in look.stacks if one.held is Held.WAITING]
    return _held(look, "waits-for-editor", held) or _lacks_client(look)


def _held(look: Look, code: str, found: list[StackView]) -> Verdict | None:
    if not found:
        return None
    first = found[0]
    more = f"; so do {len(found) - 1} more processes" if len(found) > 1 else ""
    proven = all(one.source != "py-spy" for one in found)
    return Verdict(
        code,
        f"does not hang: {_line(look, first)}{more}",
        Certainty.PROVEN if proven else Certainty.LIKELY,
        tuple(Evidence(_line(look, one), one.source) for one in found[:_MOST_LINES]),
        next_steps=(_next_step(first),),
    )


def _lacks_client(look: Look) -> Verdict | None:
    """No stack was read: debugpy waits for a client, and has none."""
    found = [
        (window, one)
        for window, one in look.leaves()
        if one.lacks_client and look.stack_of(window, one) is None
    ]
    if not found:
        return None
    window, one = found[0]
    more = f"; so do {len(found) - 1} more processes" if len(found) > 1 else ""
    return Verdict(
        "waits-for-editor",
        f"does not hang: {look.who(window, one)} {_WORDS[Held.WAITING]}{more}",
        Certainty.LIKELY,
        (
            Evidence("it was started with debugpy --wait-for-client", "/proc/PID/cmdline"),
            Evidence("nobody has connected to the port where debugpy listens", "/proc/net/tcp"),
        ),
        next_steps=(
            NextStep(f"connect the editor to that port, on {window.node}"),
            NextStep("or have tk make the way to it, in a session", "tk loop python train.py"),
        ),
    )


def _line(look: Look, stack: StackView) -> str:
    return f"{_who(look, stack)} {_WORDS[stack.held]}{_at(look, stack)}"


def _who(look: Look, stack: StackView) -> str:
    """tk's own debuggees are no programs that the probe samples."""
    for window, one in look.processes():
        if (window.node, one.pid) == (stack.node, stack.pid):
            return look.who(window, one)
    name = "its program" if stack.rank is None else f"rank {stack.rank}"
    return f"{name} (pid {stack.pid} on {stack.node})"


def debugger_loaded(look: Look) -> Verdict | None:
    """All stands, and a debugger is loaded that nobody could ask. None if a stack shows that the
    process waits for something else."""
    found = [
        (window, one)
        for window, one in look.leaves()
        if one.debugger and _may_stand(window, one) and look.stack_of(window, one) is None
    ]
    if not found:
        return None
    window, one = found[0]
    more = f", and in {len(found) - 1} more processes" if len(found) > 1 else ""
    return Verdict(
        "at-breakpoint",
        f"stands still; {one.debugger} is loaded in {look.who(window, one)}{more}: whether it "
        "stands at a breakpoint or hangs can't be seen from outside",
        Certainty.UNKNOWN,
        (Evidence(f"{one.debugger} is in pid {one.pid}", "/proc/PID/maps, cmdline"),),
        next_steps=(
            NextStep("where it was started: see whether it is stopped, and let it go on"),
            NextStep(f"its stack, on {window.node}", f"py-spy dump --pid {one.pid}"),
        ),
    )


def waits_for_input(look: Look) -> Verdict | None:
    """Nothing runs, and a program reads its stdin, which no other program of the job writes."""
    found = [(window, one) for window, one in look.leaves() if _reads_input(look, window, one)]
    if not found:
        return None
    window, one = found[0]
    stack = look.stack_of(window, one)
    source = {"terminal": "its terminal", "pipe": "its stdin, a pipe"}.get(one.stdin, "its stdin")
    return Verdict(
        "waits-for-input",
        f"waits for a line of input: {look.who(window, one)} reads {source}"
        f"{_at(look, stack) if stack else ''}",
        Certainty.LIKELY,
        (_reading(window, one),),
        next_steps=(
            NextStep("answer it where it was started (a prompt of pdb, input())"),
            NextStep("a job without a terminal gets no input: give it </dev/null"),
        ),
    )


def _may_stand(window: NodeWindow, one: ProcessView) -> bool:
    """True if it waits as pydevd makes a stopped thread wait; a server waits otherwise."""
    thread = main_thread(window, one)
    word = thread.waits_for if thread is not None else ""
    return one.run + one.children <= STANDS and word in ("", "futex", "futex-timed")


def _reads_input(look: Look, window: NodeWindow, one: ProcessView) -> bool:
    thread = main_thread(window, one)
    writers = {parent.pid for where, parent in look.programs() if where is window}
    return (
        thread is not None
        and thread.waits_for in ("stdin", "terminal")
        and one.run + one.children <= STANDS
        and (one.stdin == "terminal" or one.parent not in writers)
    )


def _reading(window: NodeWindow, one: ProcessView) -> Evidence:
    thread = main_thread(window, one)
    if thread is not None and thread.waits_for == "terminal":
        return Evidence("its main thread is in the terminal's driver", "/proc/PID/wchan")
    return Evidence("its main thread reads descriptor 0, or waits for it", "/proc/PID/syscall")


def _at(look: Look, stack: StackView) -> str:
    frame = place(stack)
    if frame is None:
        return ""
    inside = f" in {frame.function}()" if frame.function not in ("", "<module>") else ""
    return f": {where(frame, look.job.directory)}{inside}"


def _next_step(stack: StackView) -> NextStep:
    if stack.held is Held.WAITING:
        return NextStep("press F5, or connect the editor that is to debug it")
    return NextStep("let it go on in the editor or console that debugs it", "tk console")
