"""Calls, streams and notices of the control socket, between commands and the session.

`Request`: a command's call with its parameters; the answers are in `control_answers`.
`Message`: the header of a stream that a command opens. `Notice`: what the session reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tunnelkit.session.runtime.control_message import Message, Notice, Request

if TYPE_CHECKING:
    from tunnelkit.diagnosis.verdict_json import DiagnosisInfo
    from tunnelkit.mirror.progress import ProgressInfo
    from tunnelkit.session.runtime import control_answers as a
    from tunnelkit.session.runtime.status import SessionStatus

#: Limits of waits if the command names none.
SYNC_TIMEOUT_S = 120.0
READY_TIMEOUT_S = 60.0
DOCTOR_TIMEOUT_S = 10.0

# -- the session ----------------------------------------------------------------


class Status(Request["SessionStatus"]):
    """The whole session."""

    NAME = "status"


class Follow(Request["SessionStatus"]):
    """From now on send this command SAY, STATE, SENDING and `Prompt`."""

    NAME = "follow"


class Settled(Request["SessionStatus"]):
    """Wait until the session is ready. Raises the failure of its way up."""

    NAME = "settled"


class Auth(Request["SessionStatus"]):
    """Reconnect now, with questions to the user who follows. env: the user's `login_variables`."""

    NAME = "auth"
    env: dict[str, str] = {}  # noqa: RUF012  # a message is never changed


class Down(Request["a.DownAnswer"]):
    """End the session. keep: the job stays."""

    NAME = "down"
    keep: bool = False


class Why(Request["DiagnosisInfo"]):
    """Ask why a job waits, is slow or failed. job: None: the session's, else the user's newest.

    sample: for how many seconds a running job is sampled. log: judge an ended job by this file of
    the login host; "" for its own."""

    NAME = "why"
    job: str | None = None
    sample: int = 10
    log: str = ""


class Shorten(Request["a.ShortenAnswer"]):
    """Shorten the time limit of a waiting job of the user's, in minutes."""

    NAME = "shorten"
    job: str
    minutes: int


class Submit(Request["a.SubmitAnswer"]):
    """Submit a batch script. text, options, args: bytes, as Latin-1. here: the local directory.

    keep_s: 0: it isn't kept if it fails. most: elements of a job array that are kept. stand_s: 0:
    no Python of it is kept at an exception.
    """

    NAME = "submit"
    name: str
    text: str
    options: list[str]
    args: list[str]
    here: str
    keep_s: float
    idle_s: float
    most: int
    stand_s: float


class Keep(Request["list[a.KeptJob]"]):
    """List the kept jobs, or change one (None: the only one).

    action: "list", "release", or "extend" by for_s seconds from now.
    """

    NAME = "keep"
    action: str
    job: str | None = None
    for_s: float | None = None


# -- the mirror -----------------------------------------------------------------


class Sync(Request["a.SyncAnswer"]):
    """Wait until the node has confirmed every file.

    proof: without a node raise NoSessionError.
    """

    NAME = "sync"
    timeout_s: float = SYNC_TIMEOUT_S
    allow_deletes: bool = False
    proof: bool = False


class SyncResolve(Request["a.ResolveAnswer"]):
    """Settle conflicts at absolute local paths. theirs: the cluster's version wins."""

    NAME = "sync.resolve"
    files: list[str]
    theirs: bool = False
    timeout_s: float = SYNC_TIMEOUT_S


class SyncExplain(Request["a.ExplainAnswer"]):
    """Explain why an absolute local path is mirrored or not."""

    NAME = "sync.explain"
    path: str


class SyncWatch(Request[None]):
    """Send this command MIRROR notices. It is never answered."""

    NAME = "sync.watch"


class Pull(Request["a.PullAnswer"]):
    """Fetch outputs; PULL notices show the progress."""

    NAME = "pull"
    paths: list[str]


class Mount(Request[str]):
    """Mount a remote directory (None: the mirror's); the answer is HOST:DIR."""

    NAME = "mount"
    remote: str | None = None
    mountpoint: str


class ForwardAdd(Request["a.ForwardAnswer"]):
    """Open a forward. wire: through the agent. shared: for other users of the laptop, too."""

    NAME = "forward.add"
    forward: str
    wire: bool = False
    shared: bool = False


class ForwardCancel(Request[None]):
    """Close the forward at a local port."""

    NAME = "forward.cancel"
    port: int


# -- debugging ------------------------------------------------------------------


class Ready(Request["a.ReadyAnswer"]):
    """Wait until F5 works. sync: the node has every file first. loop: None: the newest."""

    NAME = "ready"
    sync: bool = False
    timeout_s: float = READY_TIMEOUT_S
    loop: int | None = None


class Attach(Request["a.AttachAnswer"]):
    """Attach to a rank or pid; None: to the only process there is.

    selection: to all ranks that it selects, instead. standing: to a program that stands at an
    exception in the job's own script, if one does.
    """

    NAME = "attach"
    target: int | None = None
    selection: str | None = None
    port: int | None = None
    standing: bool = False


class Ranks(Request["a.RanksAnswer"]):
    """Ask all ranks of a loop where they are, twice. loop: None: the newest.

    gap_s: between the two times; 0: ask once. native: path of py-spy's binary on this machine, for
    the stacks of those that don't answer or have no debugger; selection: of these ranks alone.
    again: ask once; the answers to the question before are the first of two.
    """

    NAME = "ranks"
    loop: int | None = None
    gap_s: float = 1.0
    again: bool = False
    native: str | None = None
    selection: str | None = None


class LoopInterrupt(Request["a.InterruptAnswer"]):
    """Pause a loop's program. loop: None: the newest that has an editor or a console.

    selection: the ranks, those of attachments too; None: all that have an editor or a console.
    """

    NAME = "loop.interrupt"
    loop: int | None = None
    selection: str | None = None


class LoopRestart(Request[None]):
    """Start the next run of a loop."""

    NAME = "loop.restart"
    loop: int | None = None


class LoopStop(Request[None]):
    """End a loop."""

    NAME = "loop.stop"
    loop: int | None = None


# -- processes on the node --------------------------------------------------------


class ExecSignal(Request[None]):
    """Send a signal to a process. channel: of its stream. signal: such as SIGINT."""

    NAME = "exec.signal"
    channel: int
    signal: str


class ExecResize(Request[None]):
    """Set the size of a process's terminal."""

    NAME = "exec.resize"
    channel: int
    rows: int
    cols: int


class DoctorRun(Request["a.RunAnswer"]):
    """Run a command on the login host, or on the allocation's first node."""

    NAME = "doctor.run"
    argv: list[str]
    on_node: bool = False
    timeout_s: float = DOCTOR_TIMEOUT_S


class DoctorBanner(Request[str]):
    """Return the first bytes that host:port sends, in base64."""

    NAME = "doctor.banner"
    host: str
    port: int


class Prompt(Request["str | None"]):
    """The session's question to the user at a following command; None: no answer."""

    NAME = "prompt"
    text: str
    echo: bool


# -- streams --------------------------------------------------------------------


class ExecStream(Message):
    """A process on the node; the stream carries stdin and stdout, another one stderr.

    argv: empty for a login shell. here: the local working directory. cwd: a directory on the
    node, instead. pty: rows and cols of a terminal. node: another node of the allocation.
    """

    NAME = "exec"
    argv: list[str]
    here: str | None = None
    cwd: str | None = None
    env: dict[str, str] = {}  # noqa: RUF012  # a message is never changed
    pty: dict[str, int] | None = None
    node: str | None = None


class PdbStream(Message):
    """A program under pdb itself, with the streams of `ExecStream`. words: the command."""

    NAME = "pdb"
    words: list[str]
    here: str | None = None
    cwd: str | None = None


class LoopStream(Message):
    """A debug loop; the stream carries its records.

    words: the command. port, standby, preload, post_mortem: None: as in the settings. ranks: the
    command starts ranks. only: the ranks to debug; None: all. reload: restart on changed files.
    once: one run, for `tk pdb`. keep: the loop goes on without its terminal. waits: it starts once
    the session is ready, and has that many nodes. all_pods: the command runs in each pod of the
    session; None: if it is a launcher that needs that. expands: the words are a container's.
    """

    NAME = "loop"
    words: list[str]
    here: str | None = None
    cwd: str | None = None
    port: int | None = None
    standby: bool | None = None
    preload: list[str] | None = None
    post_mortem: bool | None = None
    reload: bool = False
    ranks: bool = False
    only: list[int] | None = None
    once: bool = False
    keep: bool = False
    waits: bool = False
    nodes: int = 0
    all_pods: bool | None = None
    expands: bool = False


class LoopAdopt(Message):
    """A loop that runs already, by its id. keep: as for `LoopStream`."""

    NAME = "loop"
    adopt: int
    keep: bool = False


class JobLogStream(Message):
    """A job's own log, as records: see session/logs/stream.py.

    job: None: the session's, else the user's newest. err: stderr's file. follow: until the job
    ends. place_only: only where it is. lines, last_bytes: only the last so many. file: the user
    says that this one is the log.
    """

    NAME = "job-log"
    job: str | None = None
    file: str = ""
    err: bool = False
    follow: bool = False
    place_only: bool = False
    lines: int | None = None
    last_bytes: int | None = None


class TopStream(Message):
    """A running job's frames, one `TopInfo` a line. job: None: the session's, else the newest."""

    NAME = "top"
    job: str | None = None


class ConsoleStream(Message):
    """A console over a loop's ranks (debug/ranks/console_messages.py). loop: None: newest, or else
    all ranks that were attached to.

    entry: ranks that wait for a debugger begin, and stop at their first line.
    """

    NAME = "console"
    loop: int | None = None
    entry: bool = False


# -- notices --------------------------------------------------------------------

SAY: Final = Notice["a.SayNotice"]("say")
STATE: Final = Notice["a.StateNotice"]("state")
#: A big transfer under way; {} when it is done.
SENDING: Final = Notice["a.Progress"]("sending")
MIRROR: Final = Notice["a.MirrorEvent"]("mirror")
PULL: Final = Notice["ProgressInfo"]("pull")
