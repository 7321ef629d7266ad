"""The owner of a frame: project, library or launcher; and the collective that a stack ends in."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from enum import Enum, auto

from tunnelkit.debug.ranks.sample import StackFrame

#: After a root: an environment inside the project holds libraries all the same.
_LIBRARIES = re.compile(r"/(site-packages|dist-packages|lib(64)?/python3[^/]*)/")
_DEBUGGER = re.compile(
    r"(^|/)(debugpy|_pydevd\w*|pydevd\w*)[/.]|(^|/)tunnelkit/|\.zip/tunnelkit/|^<frozen tunnelkit>"
)
_LAUNCHER = re.compile(
    r"(^|/)runpy\.py$|^<frozen runpy>$|^<frozen importlib"
    r"|(^|/)multiprocessing/(spawn|process|context|forkserver|popen\w*|pool)\.py$"
    r"|(^|/)torch/multiprocessing/|(^|/)torch/distributed/(elastic|launcher)/"
    r"|(^|/)torch/distributed/(run|launch|argparse_util)\.py$"
    r"|(^|/)torchrun$|(^|/)mpi4py/(__main__|run)\.py$"
)
_DISTRIBUTED = "torch/distributed/"
#: Where torch's public collectives are; the names elsewhere in torch.distributed prove nothing.
COLLECTIVES_FILE = "torch/distributed/distributed_c10d.py"
_COLLECTIVES_FILES = (
    COLLECTIVES_FILE,
    "torch/distributed/_functional_collectives.py",
    "torch/distributed/nn/functional.py",
)
#: Longer names first: `reduce_scatter` is no `reduce`. monitored_barrier has no sequence number.
_COLLECTIVE = re.compile(
    r"_?(reduce_scatter|all_reduce|all_gather|all_to_all|broadcast|scatter|gather|reduce|barrier)"
    r"(_[a-z0-9_]+)?"
)
#: It waits for a collective that was begun before, which may not be the newest.
_WAIT = "wait_tensor"
_POINT_TO_POINT = re.compile(r"_?(i?send|i?recv|batch_isend_irecv)(_object_list)?|recv_any_source")
#: Frames that a decorator or torch.nn puts between a call and the function that was called.
_BETWEEN = re.compile(
    r"_?(wrapper|wrapped|inner)|_fn|decorate_context|__torch_\w+__|_(wrapped_)?call_impl|__call__"
)
#: A native call goes at most a few Python frames below torch.distributed.
_NEAR, _FAR = 3, 6
#: Frames that name a place where nothing is the project's.
_FEW = 3


class Owner(Enum):
    """The one whose code a file is."""

    PROJECT = auto()
    LIBRARY = auto()
    LAUNCHER = auto()
    DEBUGGER = auto()


class Project:
    """The files of the user's project on the nodes. It remembers its answers, for speed."""

    def __init__(self, roots: Sequence[str]) -> None:
        """roots: the project's directories on the node, absolute. "" is ignored."""
        self._roots = tuple(root.rstrip("/") + "/" for root in roots if root)
        self._owners: dict[str, Owner] = {}

    def owner(self, file: str) -> Owner:
        """The owner of `file`. Libraries of an environment inside the project are libraries."""
        known = self._owners.get(file)
        if known is None:
            known = self._owners[file] = self._find_owner(file)
        return known

    def path(self, file: str) -> str:
        """The path of one of the project's files within its root; any other path as it is."""
        inside = self._inside(file)
        return file if inside is None else inside

    def _inside(self, file: str) -> str | None:
        """The path within the innermost root; None outside of all."""
        tails = [file[len(root) :] for root in self._roots if file.startswith(root)]
        return min(tails, key=len, default=None)

    def _find_owner(self, file: str) -> Owner:
        inside = self._inside(file)
        if inside is not None and not _LIBRARIES.search("/" + inside):
            return Owner.PROJECT
        if _DEBUGGER.search(file):
            return Owner.DEBUGGER
        return Owner.LAUNCHER if _LAUNCHER.search(file) else Owner.LIBRARY

    def program(self, frames: Sequence[StackFrame]) -> Sequence[StackFrame]:
        """The frames without the debugger's and without the launcher's at the outer end.

        The launcher's stay if there are no others: the program has not begun.
        """
        return self._program(frames)[0]

    def _program(self, frames: Sequence[StackFrame]) -> tuple[Sequence[StackFrame], list[Owner]]:
        owners = self._owners_of(frames)
        if Owner.DEBUGGER in owners:
            pairs = zip(frames, owners, strict=True)
            frames = [frame for frame, owner in pairs if owner is not Owner.DEBUGGER]
            owners = self._owners_of(frames)
        begin = _launcher_frames(frames, owners)
        return frames[begin:], owners[begin:]

    def _owners_of(self, frames: Sequence[StackFrame]) -> list[Owner]:
        known = self._owners
        return [known.get(frame.file) or self.owner(frame.file) for frame in frames]

    def normal_form(self, frames: Sequence[StackFrame]) -> tuple[StackFrame, ...]:
        """As `stacks.normal_form` says."""
        program, owners = self._program(frames)
        if Owner.PROJECT not in owners:
            return tuple(map(_by_function, program[-_FEW:]))
        form = [program[at] for at, owner in enumerate(owners) if owner is Owner.PROJECT]
        owners.reverse()
        below = program[len(program) - owners.index(Owner.PROJECT) :]
        if below:
            direct = (one for one in below if not _BETWEEN.fullmatch(one.function))
            called = next(direct, below[0])
            form.append(_by_function(called))
            at = _collective_frame(below)
            if at is not None and at.function != called.function:
                form.append(_by_function(at))
        return tuple(form)

    def collective(self, frames: Sequence[StackFrame]) -> str:
        """The collective of torch.distributed that the stack ends in: `all_reduce`; "" if none.

        Only names of collectives count, and only just above the native call.
        """
        found = _collective_frame(self._below(frames))
        return found.function.lstrip("_") if found and found.function != _WAIT else ""

    def in_distributed(self, frames: Sequence[StackFrame]) -> bool:
        """Tell whether the stack may end in torch.distributed: in doubt, yes."""
        return any(is_distributed(frame.file) for frame in self._below(frames))

    def in_point_to_point(self, frames: Sequence[StackFrame]) -> bool:
        """Tell whether the stack ends in torch.distributed's send or recv."""
        return any(
            is_distributed(frame.file) and _POINT_TO_POINT.fullmatch(frame.function)
            for frame in self._below(frames)
        )

    def _below(self, frames: Sequence[StackFrame]) -> Sequence[StackFrame]:
        """The innermost frames, below the project's: the few that can matter."""
        end = len(frames)
        at = end
        while at > max(end - _FAR, 0) and self.owner(frames[at - 1].file) is not Owner.PROJECT:
            at -= 1
        return frames[at:]


def _launcher_frames(frames: Sequence[StackFrame], owners: Sequence[Owner]) -> int:
    """The number of the launcher's frames at the outer end; 0 if there are no others."""
    number = 0
    for at, owner in enumerate(owners):
        if owner is Owner.LAUNCHER:
            number = at + 1
        # `python -c "from multiprocessing.spawn import ..."` stands above its launcher.
        elif frames[at].file != "<string>":
            return number
    return 0 if number == len(frames) else number


@functools.lru_cache(maxsize=4096)
def is_distributed(file: str) -> bool:
    """Tell whether a file is torch.distributed's, its launcher aside."""
    return _DISTRIBUTED in file and not _LAUNCHER.search(file)


def operation_family(operation: str) -> str:
    """The kind of a collective by one of its names: `_all_gather_base` is an `all_gather`.

    "" for what is no collective.
    """
    found = _COLLECTIVE.fullmatch(operation.rpartition(":")[2])
    return found[1] if found else ""


def is_point_to_point(operation: str) -> bool:
    """Tell whether an operation of the flight recorder is a send or a recv."""
    return bool(_POINT_TO_POINT.match(operation.rpartition(":")[2]))


def _collective_frame(below: Sequence[StackFrame]) -> StackFrame | None:
    """The innermost frame of a collective or of a wait for one; None far from torch.distributed."""
    if not any(is_distributed(frame.file) for frame in below[-_NEAR:]):
        return None
    for frame in reversed(below):
        if frame.file.endswith(_COLLECTIVES_FILES) and (
            frame.function == _WAIT or _COLLECTIVE.fullmatch(frame.function)
        ):
            return frame
    return None


def _by_function(frame: StackFrame) -> StackFrame:
    """A frame by its function alone; torch's collectives stay recognizable."""
    collective = frame.file.endswith(_COLLECTIVES_FILES)
    return StackFrame(COLLECTIVES_FILE if collective else "", 0, frame.function)
