"""The place of this process, while its program runs or stands at a breakpoint.

The session has pydevd evaluate it in a thread of pydevd's (debug/ranks/question.py). It imports
nothing that the program has not imported, and never calls code of the program. Python 3.8.
"""

import contextlib
import json
import os
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Dict, List, Optional, Tuple

#: Frames of a longer stack that are kept: the outermost and the innermost ones.
_OUTER, _INNER = 20, 80
_LONGEST_NAME = 500
_MOST_GROUPS = 64
#: A group of more ranks is reported without them: all ranks are in it, or nobody reads the list.
_MOST_MEMBERS = 4096
_MOST_TRACE_BYTES = 65536
#: How an entry begins in a trace, and what follows the entries: keys are in alphabetical order.
_ENTRY, _AFTER_ENTRIES = b'{"collective_seq_id"', b'"nccl_comm_state"'
#: The place of the last question.
_last: List[object] = []
#: Functions of debugpy that hold the main thread.
_HOLDING = {
    "wait_for_ready_to_run": "client",
    "_wait_for_attach": "client",
    "do_wait_suspend": "stopped",
}
#: pydevd's mark of an exception that no code has caught.
_UNCAUGHT = "UNHANDLED"


def look() -> str:
    """Return as JSON: frames (file, line, function; outermost first), instruction, held (the
    program waits in the debugger: "client" for an editor, "stopped" at a place), cpu_s, groups,
    failed (the type of an uncaught exception that it is stopped at; "": none), text (of that).

    Of one that has failed, the frames are those of the exception: its stack is unwound.
    """
    main = threading.main_thread().ident
    frames: List[List[object]] = []
    instruction, held = -1, ""
    frame = sys._current_frames().get(main or 0)
    while frame is not None:
        code = frame.f_code
        name = code.co_name[:_LONGEST_NAME]
        if name == "_run_code" and code.co_filename.endswith("pydevd_runpy.py"):
            # What has called it started the program.
            break
        if name in _HOLDING and _is_debugger(code.co_filename):
            # What it has called is the debugger's, this question included.
            held, frames = _HOLDING[name], []
        # Of a traced function the innermost frames are the debugger's, too.
        elif frames or not _is_debugger(code.co_filename):
            instruction = instruction if frames else frame.f_lasti
            frames.append([_path(code.co_filename), frame.f_lineno or 0, name])
        frame = frame.f_back
    if held == "client":
        frames = []
    frames.reverse()
    failed = said = ""
    with contextlib.suppress(Exception):
        failed, said = _failed(frames)
    if len(frames) > _OUTER + _INNER:
        frames[_OUTER:-_INNER] = []
    groups: List[Dict[str, object]] = []
    place: List[object] = [frames, instruction]
    before, _last[:] = _last[:], place
    with contextlib.suppress(Exception):
        groups = _groups(waits=place == before)
    return json.dumps(
        {
            "frames": frames,
            "instruction": instruction,
            "held": held,
            "cpu_s": _cpu_s(main),
            "groups": groups,
            "failed": failed,
            "text": said,
        }
    )


def _failed(frames: List[List[object]]) -> Tuple[str, str]:
    """Return type and text of the uncaught exception that a thread is stopped at; "" if none is.

    frames: replaced by those of the exception. The text is its first argument, if that is a string:
    str() would be the program's code.
    """
    for innermost in sys._current_frames().values():
        frame: Optional[FrameType] = innermost
        while frame is not None and frame.f_code.co_name != "do_wait_suspend":
            frame = frame.f_back
        if frame is None or not _is_debugger(frame.f_code.co_filename):
            continue
        names = frame.f_locals
        if names.get("exception_type") != _UNCAUGHT:
            continue
        kind, error, trace = names["arg"]
        # SystemExit and KeyboardInterrupt end a program as it wants.
        if issubclass(kind, Exception):
            frames[:] = _frames_of(trace)
            # A class may have an `args` of its own.
            first = vars(BaseException)["args"].__get__(error)[:1]
            said = first[0] if first and type(first[0]) is str else ""
            return str(kind.__qualname__)[:_LONGEST_NAME], said[:_LONGEST_NAME]
    return "", ""


def _frames_of(trace: Optional[TracebackType]) -> List[List[object]]:
    """Return the frames of a traceback, outermost first, without the debugger's."""
    found: List[List[object]] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _is_debugger(code.co_filename):
            found.append([_path(code.co_filename), trace.tb_lineno, code.co_name[:_LONGEST_NAME]])
        trace = trace.tb_next
    return found


def _is_debugger(file: str) -> bool:
    return "/debugpy/" in file or "/pydevd" in file or "_pydevd" in file


def _path(file: str) -> str:
    """Absolute: that of a script is as it was typed."""
    if not file.startswith(("/", "<")):
        try:
            file = os.path.join(os.getcwd(), file)
        except OSError:
            pass
    return file[-_LONGEST_NAME:]


def _cpu_s(thread: Optional[int]) -> Optional[float]:
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread or 0))
    except (OSError, OverflowError, AttributeError):
        return None


def _groups(waits: bool) -> List[Dict[str, object]]:
    """The process groups of torch.distributed, if the program uses it.

    waits: the program has not moved since the last question: then its flight recorder is read.
    """
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(c10d, "_world", None)
    if world is None:
        return []
    names, members = world.pg_names, world.pg_group_ranks
    operations: Dict[str, str] = {}
    if waits:
        with contextlib.suppress(Exception):
            operations = _operations()
    groups = []
    for group in list(world.pg_map)[:_MOST_GROUPS]:
        name = str(names.get(group, ""))[:_LONGEST_NAME]
        ranks = sorted(int(rank) for rank in members.get(group) or ())
        groups.append(
            {
                "name": name,
                "description": str(getattr(group, "group_desc", ""))[:_LONGEST_NAME],
                "ranks": ranks if len(ranks) <= _MOST_MEMBERS else [],
                "sequence": int(group._get_sequence_number_for_group()),
                "operation": operations.get(name, ""),
            }
        )
    return groups


def _operations() -> Dict[str, str]:
    """The newest unfinished collective of each group, from the flight recorder.

    NCCL is asynchronous: there no stack names the collective.
    """
    library = sys.modules.get("torch._C._distributed_c10d")
    found: Dict[str, str] = {}
    for recorder in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump = getattr(library, recorder, None)
        if dump is not None:
            for entry in _newest_entries(dump(includeCollectives=True, onlyActive=True)):
                if not entry["retired"]:
                    name = str(entry["process_group"][0])
                    found[name] = str(entry["profiling_name"])[:_LONGEST_NAME]
    return found


def _newest_entries(trace: bytes) -> List[Dict[str, List[object]]]:
    """The entries at the end of a trace, which may have thousands of finished ones."""
    if len(trace) > _MOST_TRACE_BYTES:
        end = trace.rindex(b"]," + _AFTER_ENTRIES)
        begin = trace.index(_ENTRY, max(0, end - _MOST_TRACE_BYTES))
        trace = b'{"entries":[' + trace[begin:end] + b"]}"
    entries: List[Dict[str, List[object]]] = json.loads(trace).get("entries", [])
    return entries
