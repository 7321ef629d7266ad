"""The output of py-spy: read strictly, whatever comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.debug.ranks.rank_samples import ROOT, ROOTS, sample
from tunnelkit.debug.ranks.py_spy_dump import NativeStack, NoStack, Refusal, read_dump
from tunnelkit.debug.ranks.sample import ProcessState, RankState, StackFrame
from tunnelkit.debug.ranks.stacks import classify
from tunnelkit.debug.ranks_view.describe import describe
from tunnelkit.debug.ranks_view.view import RanksView


def frame(name: str, filename: str, line: int, module: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "filename": filename,
        "module": module,
        "short_filename": filename.rpartition("/")[2],
        "line": line,
        "locals": None,
        "is_entry": True,
        "is_shim_entry": True,
    }


LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
#: As py-spy 0.4.3 has it of `ctypes.PyDLL(None).usleep(...)`, innermost first.
FRAMES = [
    frame("usleep", LIBC, 0, LIBC),
    frame("0x7f47be23ff7a", "/usr/lib/libffi.so.8.1.2", 0, "/usr/lib/libffi.so.8.1.2"),
    frame("ffi_call", "/usr/lib/libffi.so.8.1.2", 0, "/usr/lib/libffi.so.8.1.2"),
    frame("PyCFuncPtr_call", "/b/_ctypes.c", 4201, "/py/_ctypes.cpython-311-x86_64-linux-gnu.so"),
    frame("native", "train.py", 12),
    frame("<module>", f"{ROOT}/train.py", 24),
    frame("0x7f47be84524a", LIBC, 0, LIBC),
]


def thread(number: int, frames: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    plain = {
        "pid": 7,
        "thread_id": 139946123651968,
        "thread_name": None,
        "os_thread_id": number,
        "active": False,
        "owns_gil": False,
        "frames": frames,
        "process_info": None,
    }
    return {**plain, **more}


def said(*threads: dict[str, Any], before: str = "") -> bytes:
    return (before + json.dumps(threads, indent=2)).encode()


def test_the_main_threads_stack_is_read_without_what_lies_between() -> None:
    output = said(
        thread(9, [frame("worker", "x.py", 1)], thread_name="MainThread"),
        thread(7, FRAMES, owns_gil=True),
        before="WARN: no symbols\n",
    )
    assert read_dump(output, 7, ROOT) == NativeStack(
        (
            StackFrame(f"{ROOT}/train.py", 24, "<module>"),
            StackFrame(f"{ROOT}/train.py", 12, "native"),
            StackFrame(LIBC, 0, "usleep"),
        ),
        holds_gil=True,
    )
    # Another thread's number: the one that is named so.
    found = read_dump(output, 8, ROOT)
    assert isinstance(found, NativeStack) and found.frames[0].function == "worker"


def test_its_place_is_the_line_and_the_c_function() -> None:
    found = read_dump(said(thread(7, FRAMES)), 7, ROOT)
    assert isinstance(found, NativeStack)
    process = ProcessState("S", "hrtimer_nanosleep")
    rank = sample(0, found.frames, state=RankState.SILENT, process=process)
    text = describe(RanksView([rank], classify([rank], [rank], ROOTS), roots=ROOTS), 120)
    assert any("train.py:12 native > usleep" in line for line in text)


@pytest.mark.parametrize(
    ("output", "kind", "why"),
    [
        (
            "Permission Denied: Try running again with elevated permissions by going 'sudo \"!!\"'",
            Refusal.PTRACE,
            "Permission Denied",
        ),
        (
            "Error: Failed to suspend process\n\nCaused by:\n    EPERM: Operation not permitted",
            Refusal.PTRACE,
            "Failed to suspend process",
        ),
        (
            "Error: Failed to get process executable name. Check that the process is running.",
            Refusal.GONE,
            "Failed to get process",
        ),
        ("Error: Failed to find python version\n", Refusal.OTHER, "Failed to find python version"),
        ("", Refusal.OTHER, "py-spy said nothing"),
        ("[]", Refusal.OTHER, "no frame of the main thread"),
        ('[{"os_thread_id": 7, "frames": []}]', Refusal.OTHER, "no frame of the main thread"),
        ("[" * 100_000, Refusal.OTHER, "can't be read"),
        ('[{"frames": [', Refusal.OTHER, "can't be read"),
        ("[" + "9" * 5000 + "]", Refusal.OTHER, "can't be read"),
        ("sh: 1: exec: /home/x/py-spy: not found", Refusal.OTHER, "not found"),
    ],
)
def test_a_refusal_is_one_line_of_a_kind(output: str, kind: Refusal, why: str) -> None:
    found = read_dump(output.encode(), 7)
    assert isinstance(found, NoStack)
    assert found.kind is kind and why in found.why and len(found.why) <= 200
    assert "\n" not in found.why


_texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["\x1b]0;x\x07", "x" * 3000, "0x12", "a.py"])
)
_anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)
    ),
    max_leaves=10,
)
_frames = st.lists(
    st.one_of(
        _anything,
        st.fixed_dictionaries(
            {"name": st.one_of(_texts, _anything)},
            optional={
                "filename": st.one_of(_texts, _anything),
                "line": st.one_of(st.integers(), _anything),
                "module": st.one_of(_texts, _anything),
            },
        ),
    ),
    max_size=6,
)
_threads = st.lists(
    st.one_of(
        _anything,
        st.fixed_dictionaries(
            {"frames": st.one_of(_frames, _anything)},
            optional={
                "os_thread_id": st.one_of(st.just(7), _anything),
                "thread_name": st.one_of(st.just("MainThread"), _anything),
                "owns_gil": _anything,
            },
        ),
    ),
    max_size=3,
)


@given(
    st.one_of(_threads.map(lambda one: json.dumps(one).encode()), st.binary()),
    st.text(max_size=20),
)
def test_hostile_output_is_a_stack_or_a_refusal_and_reaches_no_terminal_raw(
    output: bytes, cwd: str
) -> None:
    found = read_dump(output, 7, cwd)
    if isinstance(found, NoStack):
        assert len(found.why) <= 200
        rank, notes = sample(0, (), state=RankState.SILENT), [found.why]
    else:
        assert 0 < len(found.frames) <= 100
        for one in found.frames:
            assert len(one.file) <= 500 and 0 < len(one.function) <= 500 and one.line >= 0
        rank, notes = sample(0, found.frames, state=RankState.UNDEBUGGED), []
    view = RanksView([rank], classify([rank], [rank], ROOTS), notes=notes, native=True)
    for full in (False, True):
        assert all(line.isprintable() for line in describe(view, 80, full=full))


def test_a_stack_without_end_is_cut() -> None:
    deep = [frame(f"f{at}", "/x.py", at) for at in range(20_000)]
    found = read_dump(said(thread(7, deep)), 7)
    assert isinstance(found, NativeStack) and len(found.frames) == 100
    # The innermost are those that tell.
    assert found.frames[-1].function == "f0"
