"""The end of a debuggee in the words of DAP: `exited`, which attach mode never sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tunnelkit.debug.dap.messages import ExitedBody, OutputBody, text, whole
from tunnelkit.errors import DebugError

#: Numbers of Linux, where debuggees run; the laptop's own may differ (SIGBUS on macOS).
_LINUX = (
    "SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV "
    "SIGUSR2 SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN "
    "SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS"
)
_NUMBERS = {name: number for number, name in enumerate(_LINUX.split(), 1)}
_NAMES = {number: name for name, number in _NUMBERS.items()}


@dataclass(frozen=True)
class RunEnd:
    """The end of a run, as the agent reports it.

    why: "ended", or who ended it. oom_kills: kills for memory meanwhile. lost: the reason why
    nothing will be known of it; "" if something is.
    """

    code: int | None = None
    signal: str | int | None = None
    why: str = "ended"
    peak_rss_bytes: int | None = None
    oom_kills: int = 0
    lost: str = ""

    @staticmethod
    def from_event(event: Mapping[str, object]) -> RunEnd:
        """Return the end that an agent's `ended` describes."""
        signal = event.get("signal")
        return RunEnd(
            code=whole(event.get("code")),
            signal=signal if isinstance(signal, str) else whole(signal),
            why=text(event.get("why")) or "ended",
            peak_rss_bytes=whole(event.get("peak_rss_bytes")),
            oom_kills=whole(event.get("oom_kills")) or 0,
        )


@dataclass(frozen=True)
class ExitReport:
    """code: the exit code, None if a signal ended it.

    signal: a name (`SIGSEGV`, or `signal 40` where there is none) or Linux number. detail: more for
    the user, such as "after 12 s, peak RSS 3.1 GB".
    """

    code: int | None = None
    signal: str | int | None = None
    detail: str = ""

    @property
    def exit_code(self) -> int:
        """The code as shells have it: 128 + n for a signal."""
        if self.signal is None:
            return self.code if self.code is not None else 0
        return 128 + self._number

    @property
    def told(self) -> str:
        """The line for the user; empty where the exit code says all."""
        detail = f" ({self.detail})" if self.detail else ""
        if self.signal is not None:
            return f"killed by {self._name}{detail}"
        return f"exited with code {self.exit_code}{detail}" if detail else ""

    @property
    def _number(self) -> int:
        if isinstance(self.signal, int):
            return self.signal
        text = str(self.signal)
        digits = text.rpartition(" ")[2]
        return _NUMBERS.get(text) or (int(digits) if digits.isdecimal() else 0)

    @property
    def _name(self) -> str:
        if isinstance(self.signal, int):
            return _NAMES.get(self.signal, f"signal {self.signal}")
        return str(self.signal)


def cost(ran_s: float | None, peak_bytes: int | None) -> str:
    """Time and memory of a run: `after 12.3 s, peak memory 1.2 GB`; None is left out."""
    words = []
    if ran_s is not None:
        words.append(f"after {_duration(ran_s)}")
    if peak_bytes:
        words.append(f"peak memory {_size(peak_bytes)}")
    return ", ".join(words)


def _duration(span_s: float) -> str:
    if span_s < 99.95:
        return f"{span_s:.1f} s"
    minutes, seconds = divmod(round(span_s), 60)
    if minutes < 100:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _size(amount_bytes: int) -> str:
    # As nvidia-smi and Slurm count: binary, from MB up.
    if amount_bytes < 1000 * 2**20:
        return f"{max(1, round(amount_bytes / 2**20))} MB"
    return f"{amount_bytes / 2**30:.1f} GB"


class EndOfSession:
    """When and how one session hears of its end: at most one `exited`, one `terminated`.

    Bodies out: see `due`. The adapter's `terminated` waits here (`awaited`) until it is
    known how the debuggee ended, or that nobody can tell.
    """

    def __init__(self, make_event: Callable[[str, Mapping[str, object]], bytes]) -> None:
        self.ending: ExitReport | None = None
        #: Do not wait (any longer) for how it ended.
        self.given_up = False
        self.exited_told = False
        #: A `terminated` has come, whether or not the editor has it.
        self.over = False
        self._make_event = make_event
        self._terminated: bytes | None = None

    @property
    def awaited(self) -> bool:
        """True while `terminated` is held."""
        return self._terminated is not None

    def terminated(self, body: bytes | None = None) -> None:
        """The session's `terminated`: the adapter's, or one of our own. Only the first counts."""
        if not self.over:
            self.over = True
            self._terminated = body or self._make_event("terminated", {})

    def due(self, *, waits: bool, tells: bool, aloud: bool) -> list[bytes]:
        """The messages for the editor that are due now.

        waits: `terminated` is held until the exit status is known. tells: `exited` goes before it,
        if that is known; aloud: and a line for the user.
        """
        end = self._terminated
        if end is None or (
            waits and self.ending is None and not self.given_up and not self.exited_told
        ):
            return []
        self._terminated = None
        if self.ending is None or self.exited_told or not tells:
            return [end]
        self.exited_told = True
        out = []
        if self.ending.told and aloud:
            category = "console" if self.ending.signal is None else "important"
            line: OutputBody = {"category": category, "output": self.ending.told + "\n"}
            out.append(self._make_event("output", line))
        exited: ExitedBody = {"exitCode": self.ending.exit_code}
        return [*out, self._make_event("exited", exited), end]


def early_end(end: Mapping[str, object], stderr: bytes) -> DebugError:
    """The error for who waits for a debuggee that ended before any editor came.

    end: the agent's `ended`. stderr: the last that the program wrote there.
    """
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    error, signal = end.get("error"), end.get("signal")
    how = f"signal {signal}" if signal else f"exit code {end.get('code')}"
    return DebugError(
        "the debuggee ended before an editor could attach",
        cause=str(error) if error else f"{how}: {lines[-1] if lines else 'no output'}",
        hint="see `tk logs`",
    )
