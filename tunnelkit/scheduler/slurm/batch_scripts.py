"""Slurm's batch scripts: which lines and words sbatch takes for options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import LoginPrograms
from tunnelkit.scheduler.batch_scripts import OwnJob
from tunnelkit.scheduler.script_options import option_lines, split_words
from tunnelkit.scheduler.slurm.job_id import check_job_id

#: sbatch's short options with a value, which may be the next word.
SHORT_WITH_VALUE = frozenset("aAbBcCdDeFGiJLmMnNopqStwx")
#: With a value in the same word, or none.
_SHORT_OPTIONAL = frozenset("kIs")
#: Its long options without a value, or with one only after `=`. Those of no version are long ones
#: with a value.
_LONG_FLAGS = frozenset(
    re.split(
        " ",
        "consolidate-segments contiguous error-on-warn exclusive get-user-env help hold ignore-pbs "
        "immediate nice no-kill no-requeue oom-kill-step overcommit oversubscribe parsable "
        "propagate quiet reboot requeue resv-ports share spread-job spread-segments stepmgr "
        "test-only usage "
        "use-min-nodes verbose version wait wrap",
    )
)
LONG_WITH_VALUE = frozenset(
    re.split(
        " ",
        "account acctg-freq array batch bb bbf begin chdir cluster cluster-constraint clusters "
        "comment constraint container container-id core-spec "
        "cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency "
        "distribution error exclude export export-file extra extra-node-info gid gpu-bind "
        "gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input "
        "job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind "
        "mem-per-cpu mem-per-gpu "
        "mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu "
        "ntasks-per-node ntasks-per-socket open-mode output partition power prefer "
        "priority profile qos reservation segment signal sockets-per-node switches thread-spec "
        "threads-per-core time time-min tmp tmpfs tres-bind tres-per-task uid umask wckey "
        "workdir",
    )
)
_OTHER_CLUSTER = "tk asks the login host's own cluster for the job, and would not find it there"
#: Option -> why tk can't have it.
_REFUSED = {
    "cluster": _OTHER_CLUSTER,
    "clusters": _OTHER_CLUSTER,
    "wait": "the answer would come only after the job's end",
    "wrap": "there is a script already",
    "test-only": "nothing would be submitted",
    "help": "nothing would be submitted",
    "usage": "nothing would be submitted",
    "version": "nothing would be submitted",
}
_SHORT_REFUSED = {"M": "clusters", "W": "wait", "h": "help", "u": "usage", "V": "version"}
#: Option -> what to do instead of leaving it out.
_INSTEAD = dict.fromkeys(
    ("cluster", "clusters"),
    "set SLURM_CLUSTERS on the login host instead, so that every command sees it",
)
# The user's jobs that run, and the cluster's name. $1 squeue, $2 scontrol
_RUNNING = r"""
timeout 10 "$1" --me -h -t R,S -o 'tk-job %A %i %k' || exit
timeout 5 "$2" show config 2>/dev/null | sed -n 's/^ClusterName *= */tk-cluster /p'
:
"""
_ELEMENT = re.compile(r"[0-9]+_[0-9]+").fullmatch
_SPACE = b" \t\n\v\f\r"
_WAITS = re.compile(
    rb"^#(?:SBATCH|SLURM)[ \t](?:.*[ \t])?(?:--wait|-W|--test-only)[ \t]*(?:$|[ \t])", re.M
)


class SlurmBatchScripts(LoginPrograms):
    """See `BatchScripts`."""

    kind = "slurm"

    def takes_next(self, option: str) -> bool:
        """See `BatchScripts.takes_next`."""
        return takes_next(option)

    def header(self, script: bytes) -> bytes:
        """See `BatchScripts.header`. sbatch stops at the first line that is no comment."""
        _check(script)
        lines = []
        for line in script.split(b"\n"):
            text = line.lstrip(_SPACE)
            if text and not text.startswith(b"#"):
                break
            lines.append(line)
        header = b"\n".join(lines[1:])
        if _WAITS.search(header):
            raise UsageError(
                "the script's #SBATCH lines hold --wait or --test-only",
                cause="with them sbatch does not answer at once with a job's id",
                hint="take them out; `tk why JOB` shows how the job is",
            )
        for word in _header_options(script):
            if _refused(word) in _INSTEAD:
                raise _refusal(word, f"the script's #SBATCH option {word!r}")
        return header

    def argv(self, options: Sequence[str]) -> list[str]:
        """See `BatchScripts.argv`."""
        for word in options:
            if _refused(word):
                raise _refusal(word, f"sbatch option {word!r}")
        return ["env", "-u", "SBATCH_WAIT", self._program("sbatch"), "--parsable", *options]

    def check_args(self, args: Sequence[str]) -> None:
        """See `BatchScripts.check_args`. sbatch gives it any."""

    def bin_dir(self) -> str:
        """See `BatchScripts.bin_dir`."""
        return self.directory_of("sbatch")

    def wake(self, job_id: str) -> list[str]:
        """See `BatchScripts.wake`."""
        return self._signal(job_id, "CONT")

    def release(self, job_id: str) -> list[str]:
        """See `BatchScripts.release`."""
        return self._signal(job_id, "TERM")

    def _signal(self, job_id: str, name: str) -> list[str]:
        scancel = self._program("scancel")
        return ["timeout", "10", scancel, "--batch", f"--signal={name}", check_job_id(job_id)]

    def running(self) -> list[str]:
        """See `BatchScripts.running`."""
        squeue = self._program("squeue")
        filters = (
            "PARTITION",
            "ACCOUNT",
            "QOS",
            "LICENSES",
            "NAMES",
            "USERS",
            "PRIORITY",
            "SIBLING",
        )
        clean = [word for name in filters for word in ("-u", f"SQUEUE_{name}")]
        programs = (squeue, f"{squeue.removesuffix('squeue')}scontrol")
        return ["env", *clean, "sh", "-c", _RUNNING, "sh", *programs]

    def parse_running(self, done: Completed) -> list[OwnJob]:
        """See `BatchScripts.parse_running`."""
        if done.exit_code != 0:
            raise SchedulerError(
                "Slurm can't be asked for your jobs",
                cause=done.error_text or f"exit status {done.exit_code}",
                hint="try again in a minute",
                transient=True,
            )
        found = re.findall(r"^tk-job ([0-9]+) (\S+) ?(.*)$", done.text, re.M)
        named = re.findall(r"^tk-cluster (\S+)$", done.text, re.M)
        cluster = named[-1] if named else ""
        return [
            OwnJob(job, "" if text == "(null)" else text, cluster, name if _ELEMENT(name) else "")
            for job, name, text in found
        ]


def takes_next(word: str) -> bool:
    """Return True if the word after this option is its value."""
    if word.startswith("--"):
        name, has_value, _ = word[2:].partition("=")
        if has_value or name in _LONG_FLAGS:
            return False
        # getopt takes the beginning of a name, too.
        with_value = {one for one in LONG_WITH_VALUE if one.startswith(name)}
        return name in with_value or (
            bool(with_value) and not any(one.startswith(name) for one in _LONG_FLAGS)
        )
    for at, letter in enumerate(word[1:], 2):
        if letter in SHORT_WITH_VALUE:
            return at == len(word)
        if letter in _SHORT_OPTIONAL:
            return False
    return False


def long_option(name: str) -> str:
    """Return the long option that a name, or the beginning of one, stands for."""
    known = _LONG_FLAGS | LONG_WITH_VALUE
    meant = {one for one in known if one.startswith(name)} if name not in known else {name}
    return meant.pop() if len(meant) == 1 else name


def _refused(word: str) -> str | None:
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        known = _LONG_FLAGS | LONG_WITH_VALUE
        meant = {name} if name in known else {one for one in known if one.startswith(name)}
        return next((one for one in _REFUSED if name and meant == {one}), None)
    if not word.startswith("-"):
        return None
    for letter in word[1:]:
        if letter in _SHORT_REFUSED:
            return _SHORT_REFUSED[letter]
        if letter in SHORT_WITH_VALUE | _SHORT_OPTIONAL:
            return None
    return None


def _refusal(word: str, what: str) -> UsageError:
    name = _refused(word) or ""
    return UsageError(
        f"{what} can't be used with tk submit",
        cause=f"--{name}: {_REFUSED[name]}",
        hint=_INSTEAD.get(name, "leave it out"),
    )


def _header_options(script: bytes) -> Iterator[str]:
    """Return the options in a script's lines, without values in words of their own."""
    for line in option_lines(script, b"#SBATCH")[0]:
        words = iter(split_words(line))
        for word in words:
            yield word
            if takes_next(word):
                next(words, None)


def _check(script: bytes) -> None:
    """Raise UsageError for what sbatch refuses before it asks Slurm."""
    refusals = (
        (not script, "is empty", "write the batch script first"),
        (not script.strip(_SPACE), "holds only white space", "write the batch script first"),
        (
            not script.startswith(b"#!"),
            "does not begin with #!",
            "its first line names the interpreter: #!/bin/bash",
        ),
        (b"\0" in script, "holds a NUL byte", "a batch script is text"),
        (
            b"\r\n" in script,
            "has DOS line ends (\\r\\n)",
            "turn them into Unix line ends, as by dos2unix",
        ),
    )
    for holds, text, hint in refusals:
        if holds:
            raise UsageError(f"the script {text}", cause="sbatch refuses such a script", hint=hint)
