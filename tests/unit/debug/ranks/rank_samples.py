"""Samples of ranks for the tests: a training program, written as short as they can be read."""

from __future__ import annotations

from hypothesis import strategies as st

from tunnelkit.debug.ranks.sample import (
    Failure,
    GroupProgress,
    ProcessState,
    RankSample,
    RankState,
    StackFrame,
)

ROOT = "/home/ada/train"
ROOTS = [ROOT]
TORCH = "/opt/env/lib/python3.11/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"


def own(file: str, line: int, function: str) -> StackFrame:
    return StackFrame(f"{ROOT}/{file}", line, function)


MAIN = own("train.py", 70, "main")
STEP = own("train.py", 88, "step")
#: A rank that reads its next batch.
LOADS = (own("train.py", 80, "main"), own("data.py", 22, "__iter__"), own("data.py", 31, "load"))
#: A rank that computes.
COMPUTES = (MAIN, own("model.py", 12, "forward"), StackFrame(f"{TORCH}/nn/linear.py", 5, "forward"))


def within(operation: str, line: int = 88) -> tuple[StackFrame, ...]:
    """The stack of a rank in one of torch's collectives, as torch 2.13 has it."""
    return (
        MAIN,
        own("train.py", line, "step"),
        StackFrame(f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper"),
        StackFrame(C10D, 3252, operation),
    )


def sample(
    rank: int,
    frames: tuple[StackFrame, ...] = (MAIN, STEP),
    *groups: GroupProgress,
    state: RankState = RankState.RUNNING,
    cpu_s: float | None = 1.0,
    instruction: int = 10,
    process: ProcessState | None = None,
    pid: int | None = None,
    command: str = "",
) -> RankSample:
    return RankSample(
        rank=rank,
        node=f"node{rank // 8 + 1}",
        pid=20_000 + rank if pid is None else pid,
        state=state,
        frames=frames,
        instruction=instruction,
        cpu_s=cpu_s,
        groups=groups,
        process=process,
        command=command,
    )


def world(sequence: int, operation: str = "") -> GroupProgress:
    return GroupProgress("world", (), sequence, operation)


_names = st.text(max_size=12)
_files = st.one_of(
    st.sampled_from(
        [
            f"{ROOT}/train.py",
            f"{ROOT}/.venv/lib/python3.11/site-packages/lib/a.py",
            C10D,
            f"{TORCH}/distributed/c10d_logger.py",
            f"{TORCH}/distributed/elastic/agent.py",
            "<frozen runpy>",
            "<string>",
            "/opt/debugpy/_vendored/pydevd/pydevd.py",
            "/usr/lib/python3.11/threading.py",
            "",
        ]
    ),
    _names,
)
_functions = st.one_of(
    st.sampled_from(["main", "wrapper", "all_reduce", "recv", "barrier", "_call_impl", "get"]),
    _names,
)
frames = st.lists(
    st.builds(StackFrame, _files, st.integers(-1, 10**9), _functions), max_size=9
).map(tuple)
_numbers = st.one_of(st.none(), st.floats())
_groups = st.lists(
    st.builds(
        GroupProgress,
        st.sampled_from(["world", "tp"]),
        st.sampled_from([(), (0, 1), (2, 3, 1)]),
        st.integers(-1, 4),
        st.sampled_from(["", "all_reduce", "send"]),
    ),
    max_size=2,
).map(tuple)
samples = st.lists(
    st.builds(
        RankSample,
        st.integers(0, 6),
        _names,
        st.integers(0, 3),
        st.sampled_from(RankState),
        frames,
        st.integers(-1, 3),
        _numbers,
        _groups,
        st.one_of(
            st.none(),
            st.builds(ProcessState, st.sampled_from("RSDTZ?"), _names, st.floats(), st.booleans()),
        ),
        st.integers(0, 3),
        _names,
        st.none() | st.builds(Failure, _names, _names, st.floats()),
    ),
    max_size=8,
)
