"""The interface to the options in a batch script, for `tk simulate`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tunnelkit.scheduler.shell_text import shell_lines


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """The request of a job for all its nodes together. mem_bytes: None without a limit."""

    cpus: int = 1
    mem_bytes: int | None = None
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """The job that a script and its options ask for, as far as a run elsewhere needs it.

    cpus: on its first node, for the tasks there; cpus_per_task: None if it is not asked for.
    mem_bytes: on that node; None without a limit of its own. array_first: the first index of a job
    array. directory: its working directory, as written; "" for the one of the submission. outputs:
    its output files, as written. clean: it gets no variables of the submission. in_image: all of it
    runs in a container's image. slots: the rows of its node file for that node (PBS). whole: on
    all nodes (PBS). by_options: variables that it has since its options say so. unread: options
    whose value could not be read.
    """

    name: str = ""
    nodes: int = 1
    tasks: int = 1
    cpus: int = 1
    cpus_per_task: int | None = None
    mem_bytes: int | None = None
    mem_per_cpu_bytes: int | None = None
    gpus: int = 0
    time_s: int | None = None
    array_first: int | None = None
    directory: str = ""
    outputs: tuple[str, ...] = ()
    partition: str = ""
    account: str = ""
    clean: bool = False
    in_image: bool = False
    slots: int = 1
    whole: WholeRequest = WholeRequest()
    by_options: tuple[tuple[str, str], ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wishes of a command line of tk's, in no scheduler's words. mem: as in `[allocation]`."""

    mem: str | None = None
    cpus: int | None = None
    time_s: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """A question to the scheduler that submits nothing: argv with stdin."""

    argv: tuple[str, ...]
    stdin: bytes = b""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why the scheduler would not take a job, or never start it. hint: what to do."""

    text: str
    hint: str = ""


class ScriptOptions(Protocol):
    """Reads the options of batch scripts as one scheduler does."""

    @property
    def name(self) -> str:
        """The scheduler's name: `slurm`, `pbs` or `torque`."""
        ...

    @property
    def mark(self) -> str:
        """The beginning of a line with options: `#SBATCH`."""
        ...

    def takes_next(self, option: str) -> bool:
        """Return True if the word after this option is its value."""
        ...

    def words(self, script: bytes) -> list[str]:
        """Return the options in a script, in order."""
        ...

    def late(self, script: bytes) -> list[int]:
        """Return the numbers (from 1) of lines with options that the scheduler does not see,
        because a command stands before them."""
        ...

    def request(self, words: Sequence[str]) -> ScriptRequest:
        """Return what options ask for; of two values the last counts."""
        ...

    def asking(self, wanted: Wanted) -> list[str]:
        """Return the scheduler's options for this. Raises UsageError."""
        ...

    def dry_run(self, script: bytes, options: Sequence[str]) -> DryRun:
        """Return the question whether the scheduler would take this script.

        options: of the command line."""
        ...

    def refusals(self, request: ScriptRequest, code: int, text: str) -> list[Refusal] | None:
        """Return why the scheduler would not take it; None if it did not answer."""
        ...

    def variables(
        self, request: ScriptRequest, host: str, directory: str, here: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the variables that a job of this request has, on one node `host`.

        here: those of the submission."""
        ...


def option_lines(script: bytes, mark: bytes) -> tuple[list[str], list[int]]:
    """Return what follows `mark` in the lines before the first command, and the numbers of such
    lines after it (in the first column only; those in a here-document or a string are text)."""
    rows = script.split(b"\n")
    marked = [
        number
        for number, row in enumerate(rows, 1)
        if row.startswith(mark) and not row[len(mark) : len(mark) + 1].strip()
    ]
    commands = (number for number, row in enumerate(rows, 1) if _is_command(row))
    first = next(commands, len(rows) + 1)
    before = [
        rows[number - 1][len(mark) :].decode("utf-8", "replace").strip()
        for number in marked
        if number < first
    ]
    late = {number for number in marked if number > first}
    if late:
        late &= {number for number, _ in shell_lines(script.decode("latin-1"))}
    return before, sorted(late)


def is_for_pbs(script: bytes) -> bool:
    """Return True if the script has lines for PBS, and none for Slurm."""
    return any(option_lines(script, b"#PBS")) and not any(option_lines(script, b"#SBATCH"))


def _is_command(row: bytes) -> bool:
    return bool(row.strip()) and not row.lstrip().startswith(b"#")


def with_default(options: ScriptOptions, default: Wanted, given: Sequence[str]) -> list[str]:
    """Return the words before which `default` asks: of two values the last counts."""
    others = options.asking(replace(default, mem=None))
    # Slurm refuses --mem beside --mem-per-cpu.
    if options.request([*others, *given]).mem_bytes is not None:
        return [*others, *given]
    return [*options.asking(default), *given]


def split_words(text: str) -> list[str]:
    """Split a line of options: quotes and backslashes as a shell's, and a comment at a blank."""
    words: list[str] = []
    word: list[str] = []
    inside = False
    quote = ""
    letters = iter(text)
    for letter in letters:
        if quote:
            if letter == quote:
                quote = ""
            elif letter == "\\" and quote == '"':
                word.append(next(letters, ""))
            else:
                word.append(letter)
            continue
        if letter in " \t\r\v\f":
            if inside:
                words.append("".join(word))
            word, inside = [], False
            continue
        if letter == "#" and not inside:
            break
        inside = True
        if letter in "'\"":
            quote = letter
        elif letter == "\\":
            word.append(next(letters, ""))
        else:
            word.append(letter)
    return [*words, "".join(word)] if inside else words
