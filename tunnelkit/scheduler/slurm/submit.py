"""sbatch: its argv for the job, the options that tk refuses, and its error messages.

Values go to sbatch as argv words, never into `#SBATCH` lines, so that none can
add a line of its own. Every value is checked against the alphabet it may have.
"""

from __future__ import annotations

import re

from tunnelkit.errors import UsageError
from tunnelkit.model import Completed, ResourceRequest, check_host, check_job_name
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.command_error import CommandErrors
from tunnelkit.scheduler.slurm.duration import format_duration

_NAME = re.compile(r"[A-Za-z0-9_.,:@+-]+")
_MEM = re.compile(r"[0-9]+[KMGTkmgt]?")
_CONSTRAINT = re.compile(r"[A-Za-z0-9_.,:=&|!*()\[\]@+-]+")
_SUBMITTED = re.compile(r"([0-9]+)(?:;\S*)?")

#: Seconds before the time limit at which the job's script gets USR1 (Slurm may be 60 s early).
WARN_BEFORE_END_S = 120
#: In the environment of the job's script and its agent (agent/agent.py): that lead time in seconds.
WARNING_VARIABLE = "TK_WARNING_S"

# sbatch takes options from the environment too; these two can't be overruled by its argv.
_CLEAN = ("env", "-u", "SBATCH_ARRAY_INX", "-u", "SBATCH_WAIT")

_BY_TK = "tk sets it itself"
#: long option -> why it would break the job
_REFUSED = {
    "job-name": "tk finds its job again by the name it gave",
    "output": "tk reads the job's log from where it put it",
    "error": "tk reads the job's log from where it put it",
    "array": "one allocation is one job; debug one element as a job of its own, with its "
    "SLURM_ARRAY_TASK_ID set: tk run env SLURM_ARRAY_TASK_ID=3 ...",
    "wrap": "the job's script is tk's own",
    "nodes": "set nodes under [allocation] instead",
    "ntasks": "the holder is one task a node",
    "ntasks-per-node": "the holder is one task a node",
    "nodelist": "name the node itself: tk up NODE",
    "time": "set time under [allocation] instead",
    "signal": _BY_TK,
    "requeue": "set requeue under [allocation], or: tk up --requeue",
    "wait": "tk would hang until the job ends",
    "test-only": "nothing would be submitted",
    "parsable": _BY_TK,
    "clusters": "set SLURM_CLUSTERS on the login host, so that every command sees it",
    "chdir": _BY_TK,
    "help": "it submits nothing",
    "usage": "it submits nothing",
    "version": "it submits nothing",
}
_SHORT = {
    "J": "job-name", "o": "output", "e": "error", "a": "array", "N": "nodes", "n": "ntasks",
    "w": "nodelist", "t": "time", "W": "wait", "M": "clusters", "D": "chdir", "h": "help",
    "V": "version",
}  # fmt: skip
#: Short options without a value: more may follow in the same word (`-HJname`).
_SHORT_FLAGS = "HhOQuvVWI"
#: Full names that begin like a refused one but are something else.
_ALLOWED = {"cluster-constraint", "time-min", "no-requeue", "error-on-warn"}


def submit_command(
    request: ResourceRequest, *, job_name: str, body: str, log_dir: str, program: str = "sbatch"
) -> Command:
    """Return the sbatch call. Raises UsageError for a value that sbatch can't accept.

    `gpus`, `cpus` and `mem` count per node. With several nodes Slurm starts the body on
    the first only; the others are reached with `enter`.
    """
    nodes = _positive(request.nodes, "nodes")
    argv = [*_CLEAN, program, "--parsable", f"--job-name={check_job_name(job_name)}"]
    argv += [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    argv += _resources(request)
    warn_s = _warn_s(request.time_limit_s)
    argv += [
        "--requeue" if request.requeue else "--no-requeue",
        f"--signal=B:USR1@{warn_s}",
    ]
    argv += ["--open-mode=append", f"--output={_log_pattern(log_dir)}"]
    argv += [check_extra(word) for word in request.extra]
    if "\0" in body:
        raise UsageError("the job's script holds a NUL byte", hint="correct [cluster] prologue")
    # sbatch reads #SBATCH lines only before the first command, which is `export`: a prologue that
    # holds such a line can't change the job.
    script = f"#!/bin/sh\nexport {WARNING_VARIABLE}={warn_s}\n{body}"
    return Command(tuple(argv), script.encode())


def _resources(request: ResourceRequest) -> list[str]:
    argv: list[str] = []
    if request.node is not None:
        argv.append(f"--nodelist={check_host(request.node)}")
    if request.gpus is not None:
        # Not --gpus-per-node for one node: plain --gpus is what sites' filters know.
        option = "--gpus" if request.nodes == 1 else "--gpus-per-node"
        argv.append(f"{option}={_positive(request.gpus, 'gpus', least=0)}")
    if request.cpus is not None:
        argv.append(f"--cpus-per-task={_positive(request.cpus, 'cpus')}")
    if request.time_limit_s is not None:
        seconds = _positive(request.time_limit_s, "time")
        argv.append(f"--time={format_duration(seconds)}")
    for option, value, pattern in (
        ("mem", request.mem, _MEM),
        ("partition", request.partition, _NAME),
        ("account", request.account, _NAME),
        ("qos", request.qos, _NAME),
        ("constraint", request.constraint, _CONSTRAINT),
        ("reservation", request.reservation, _NAME),
    ):
        if value is not None:
            if not pattern.fullmatch(value):
                raise UsageError(
                    f"{option} {value!r} is not a value that Slurm takes",
                    hint="check the flag, or that key under [allocation]",
                )
            argv.append(f"--{option}={value}")
    if request.exclusive:
        argv.append("--exclusive")
    return argv


def _positive(value: int, what: str, *, least: int = 1) -> int:
    if value < least:
        raise UsageError(f"{what} is {value}, but must be at least {least}", hint="ask for more")
    return value


def _warn_s(time_limit_s: int | None) -> int:
    """Return the lead time of the warning: half of a short limit, so that it comes late enough."""
    if time_limit_s is None:
        return WARN_BEFORE_END_S
    return max(1, min(WARN_BEFORE_END_S, time_limit_s // 2))


def _log_pattern(log_dir: str) -> str:
    if not log_dir or re.search(r"[\x00-\x1f\\]", log_dir):
        raise UsageError(
            f"{log_dir!r} can't be a directory for the job's log",
            hint="its path may hold no control character and no backslash",
        )
    # sbatch knows no `~`, but takes relative names from where it runs: ssh's home.
    path = "./" + log_dir[2:] if log_dir.startswith("~/") else log_dir
    return path.rstrip("/").replace("%", "%%") + "/%j.log"


def check_extra(word: str) -> str:
    """Return `word` if sbatch may get it as it is. Raises UsageError if it would break the job.

    An option and its value are one word: text without a dash would be taken for the
    script file. getopt takes shortened names too (`--job-na=x`), so these are refused alike.
    """
    if re.search(r"[\x00-\x1f\x7f]", word):
        raise UsageError(
            f"sbatch option {word!r} holds a control character", hint="correct [allocation] extra"
        )
    if not re.match(r"--?[A-Za-z]", word):
        raise UsageError(
            f"{word!r} is not an sbatch option",
            hint="write an option and its value as one word: --option=value",
        )
    name = _refused_long(word) if word.startswith("--") else _refused_short(word)
    if name:
        raise UsageError(
            f"sbatch option {word!r} can't be used for a tk job",
            cause=f"--{name}: {_REFUSED[name]}",
            hint="take it out of [allocation] extra",
        )
    return word


def _refused_long(word: str) -> str | None:
    given = word[2:].partition("=")[0]
    if given in _ALLOWED:
        return None
    return next((name for name in _REFUSED if name.startswith(given)), None)


def _refused_short(word: str) -> str | None:
    for letter in word[1:]:
        if letter in _SHORT:
            return _SHORT[letter]
        if letter not in _SHORT_FLAGS:
            return None
    return None


#: what sbatch prints -> hint; the first that matches counts
_HINTS: tuple[tuple[str, str], ...] = (
    ("invalid node name", "`sinfo -N` on the login host lists the nodes"),
    ("generic resource|gres", "`sinfo -o '%N %G'` on the login host shows which nodes have which "
     "GPUs; where --gpus is not known, set extra = [\"--gres=gpu:1\"] instead of gpus"),
    ("memory specification", "ask for less mem; `sinfo -o '%P %m'` shows what nodes have"),
    ("node configuration|node count", "no node has that many GPUs, CPUs or that much memory: ask "
     "for less, or for another node or partition (`sinfo -o '%P %D %c %m %G %f'`)"),
    ("violates accounting|policy", "you are over a limit of your account or QOS: end other jobs or "
     "ask for less"),
    ("account", "`sacctmgr show assoc user=$USER` on the login host lists your accounts"),
    ("partition", "`sinfo -s` on the login host lists the partitions"),
    ("qos", "`sacctmgr show assoc user=$USER format=qos` on the login host lists yours"),
    ("time limit|--time", "ask for less time; `sinfo -o '%P %l'` shows the partitions' limits"),
    ("reservation", "`scontrol show reservation` on the login host lists them"),
    ("feature|constraint", "`sinfo -o '%N %f'` on the login host lists the features"),
    ("unrecognized option|invalid option", "look at extra under [allocation]: this Slurm does not "
     "know that option"),
    ("unspecified error|cli_filter", "a rule of your site refuses it: change what it names, or "
     "ask your site"),
)  # fmt: skip

_TRANSIENT = re.compile(
    r"unable to contact|socket timed out|connection (refused|timed out|reset)|timed out|"
    r"transport|zero bytes|slurm backup controller|temporarily|resource temporarily|"
    r"communication|could not establish a configuration source|controller is (busy|in standby)|"
    r"try again|munge|protocol authentication|message (receive|send) failure|insane message|"
    r"unexpected message|unspecified error|stale file handle|authentication credential|"
    r"unable to process configuration",
    re.IGNORECASE,
)

_ERROR_LINE = re.compile(r"^(?:\w+: (?:error|fatal)|slurm_\w+ error): .*", re.MULTILINE)
#: The lines before the verdict, and what sbatch gives as the reason.
_VERDICT = re.compile(
    r"(?s:(.*\n)?)[^\n]*(?:Batch job submission failed: |allocation failure: |cli_filter plugin )"
    r"([^\n]*)"
)
#: A site may print more, but a cause is one line.
_MOST_LINES = 8


def _verdict(error_text: str) -> str:
    """Return the part of stderr that tells whether the controller could be asked.

    A site's job_submit plugin prints its reason in words of its own, before the verdict; the login
    shell's start files may print anything before Slurm's lines.
    """
    match = _VERDICT.match(error_text)
    if match is None:
        return "\n".join(_ERROR_LINE.findall(error_text)) or error_text
    # A plugin that refuses a job leaves this as the reason; so do some lost connections, alone.
    if "Unspecified error" in match[2] and _ERROR_LINE.search(match[1] or ""):
        return ""
    return match[2]


def slurm_words(done: Completed) -> str:
    """Return the lines of stderr that name the error, without Slurm's prefixes, as one line."""
    lines: list[str] = []
    for line in done.error_text.splitlines():
        # `sbatch: error: Batch job submission failed: REASON` -> `REASON`
        text = re.sub(r"^\w+: (error|fatal): ", "", line.strip())
        text = re.sub(r"^Batch job submission failed: ", "", text)
        text = re.sub(r"^slurm_\w+ error: ", "", text)
        if re.search(r"\w", text) and text not in lines:
            lines.append(text)
    return "; ".join(lines[-_MOST_LINES:])


_PROGRAMS = "sbatch|squeue|scancel|srun|sacct|scontrol|sinfo"
_ERRORS = CommandErrors(
    "Slurm", "Slurm's controller", _PROGRAMS, slurm_words, _verdict, _TRANSIENT, _HINTS
)
is_transient, refusal = _ERRORS.is_transient, _ERRORS.refusal


def parse_submit(done: Completed) -> str:
    """Return the job id that sbatch printed (`ID` or `ID;cluster`). Raises SchedulerError."""
    refused = "Slurm did not take the job"
    return _ERRORS.job_id(done, _SUBMITTED, program="sbatch", lists="squeue", refused=refused)
