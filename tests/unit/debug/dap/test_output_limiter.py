"""Output on its way to the editor: joined, bounded, in order, never held without need."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.debug.dap_messages import (
    answer,
    attached,
    event,
    names,
    output,
    read,
    request,
)
from tunnelkit.debug.dap.output_limiter import OutputLimits
from tunnelkit.debug.dap.session import DapSession

LIMITS = OutputLimits(burst_bytes=2000, rate_bytes_s=1000, tail_bytes=400)
#: What one event of joined output weighs beside its text, and the note about what was left out.
OVERHEAD = 250


def small_view(**arguments: object) -> DapSession:
    return attached(DapSession(limits=LIMITS), **{"redirectOutput": True, **arguments})


def text_of(bodies: list[bytes], category: str = "stdout") -> str:
    return "".join(
        message["body"]["output"]
        for message in read(bodies)
        if message.get("event") == "output" and message["body"].get("category") == category
    )


def test_one_event_passes_as_the_same_bytes() -> None:
    body = output("hello\n")
    assert small_view().from_adapter([body], 0.0)[0] is body


def test_what_arrives_in_one_go_is_joined() -> None:
    view = small_view()
    parts = [output(text) for text in ("line", " ", "1", "\n", "line 2\n")]
    out = view.from_adapter(parts, 0.0)
    assert len(out) == 1
    message = json.loads(out[0])
    assert message["body"] == {"output": "line 1\nline 2\n", "category": "stdout", "source": {}}
    assert message["seq"] == json.loads(parts[0])["seq"]


def test_nothing_waits_for_the_next_read() -> None:
    view = small_view()
    assert text_of(view.from_adapter([output("a")], 0.0)) == "a"
    assert text_of(view.from_adapter([output("b")], 0.0)) == "b"
    assert view.due_s is None


def test_kinds_are_not_mixed_and_order_is_kept() -> None:
    view = small_view()
    bodies = [
        output("1", "stdout"),
        output("2", "stderr"),
        output("3", "stdout"),
        output("4", "stdout", line=7),
        output("5", "stdout"),
        answer(9, "evaluate"),
        output("6", "stdout"),
        event("thread", {"reason": "started", "threadId": 1}),
        output("7", "stdout", group="start"),
        output("8", "stdout", variablesReference=3),
        output("9", "important"),
        output("10", "telemetry", data={"x": 1}),
        output("11", "stdout"),
    ]
    assert view.from_adapter(bodies, 0.0) == bodies


def test_lone_surrogates_and_nul_survive_joining() -> None:
    view = small_view()
    out = view.from_adapter([output("\udcff\0"), output("é\n")], 0.0)
    assert text_of(out) == "\udcff\0é\n"


def flood(lines: int, start: int = 0) -> list[bytes]:
    return [output(f"line {number}\n") for number in range(start, start + lines)]


def test_a_flood_shows_its_beginning_its_end_and_how_much_is_left_out() -> None:
    view = small_view()
    out = view.from_adapter(flood(1000), 0.0)
    assert text_of(out).startswith("line 0\nline 1\n")
    assert text_of(out).endswith("\n")
    assert sum(map(len, out)) <= LIMITS.burst_bytes
    stop = event("stopped", {"reason": "breakpoint", "threadId": 1})
    after = view.from_adapter([stop], 0.01)
    assert names(after) == ["output", "output", "stopped"]
    shown = text_of(out + after)
    assert shown.endswith("line 998\nline 999\n")
    left_out = 1000 - shown.count("\n")
    assert text_of(after, "console") == f"... {left_out} lines left out; all of it: tk logs\n"
    assert view.output.left_out_lines == left_out


@pytest.mark.parametrize(
    ("arguments", "is_logged"),
    [
        ({"redirectOutput": True}, True),
        ({"redirectOutput": False, "debugOptions": ["RedirectOutput"]}, True),
        ({"redirectOutput": False, "debugOptions": ["ShowReturnValue"]}, False),
        ({"redirectOutput": False, "debugOptions": 7}, False),
    ],
)
def test_what_is_left_out_of_log_points_is_given_to_the_log(
    arguments: dict[str, object], is_logged: bool
) -> None:
    """Their text goes to the editor alone: the program writes nothing of it."""
    view = small_view(**arguments)
    out = view.from_adapter(flood(1000), 0.0)
    unlogged = view.output.take_unlogged()
    out += view.from_adapter(flood(50, start=1000), 0.01)
    unlogged += view.output.take_unlogged()
    out += view.from_adapter([event("stopped", {"reason": "breakpoint", "threadId": 1})], 0.02)
    assert view.output.take_unlogged() == ""
    note = text_of(out, "console")
    if is_logged:
        assert unlogged == "" and note.endswith("left out; all of it: tk logs\n")
        return
    assert note.endswith(f"... {unlogged.count(chr(10))} lines left out; see tk logs\n")
    lines = sorted(
        [*text_of(out).splitlines(), *unlogged.splitlines()], key=lambda one: int(one[5:])
    )
    assert lines == [f"line {number}" for number in range(1050)]


def test_the_rest_comes_by_itself_once_it_is_due() -> None:
    view = small_view()
    view.from_adapter(flood(1000), 0.0)
    due_s = view.due_s
    assert due_s is not None
    assert view.on_time(due_s - 0.001) == []
    assert text_of(view.on_time(due_s)).endswith("line 999\n")
    assert view.due_s is None
    later = output("calm again\n")
    assert view.from_adapter([later], due_s + 5.0) == [later]


def test_responses_overtake_a_flood_events_do_not() -> None:
    view = small_view()
    view.from_adapter(flood(1000), 0.0)
    pause = answer(12, "pause")
    assert view.from_adapter([*flood(10), pause, *flood(10)], 0.01) == [pause]
    out = view.from_adapter([*flood(3), event("terminated")], 0.02)
    assert names(out)[:2] == ["output", "output"]
    assert text_of(out).endswith("line 2\n")


def test_one_huge_line_is_cut() -> None:
    view = small_view()
    out = view.from_adapter([output("x" * 100_000)], 0.0)
    out += view.from_adapter([event("stopped", {"reason": "step"})], 0.0)
    assert sum(map(len, out)) < LIMITS.burst_bytes + LIMITS.tail_bytes + 2 * OVERHEAD
    note = text_of(out, "console")
    assert note.startswith("\n... ") and note.endswith(" characters left out; all of it: tk logs\n")
    left_out = int(note.split()[1].replace(",", ""))
    assert len(text_of(out)) + left_out == 100_000


def test_a_long_calm_earns_no_more_than_one_burst() -> None:
    view = small_view()
    view.from_adapter([output("a\n")], 0.0)
    out = view.from_adapter(flood(1000), 1e6)
    assert LIMITS.burst_bytes / 2 < sum(map(len, out)) <= LIMITS.burst_bytes


def test_numbers_are_easy_to_read() -> None:
    view = small_view()
    view.from_adapter(flood(20_000), 0.0)
    out = view.from_adapter([event("stopped", {"reason": "step"})], 0.0)
    assert (
        ",".join(text_of(out, "console").split()[1].split(",")) == f"{view.output.left_out_lines:,}"
    )
    assert view.output.left_out_lines > 10_000


_texts = st.text(st.sampled_from('ab\n\\"é\0'), max_size=400)
_step = st.one_of(
    st.tuples(st.just("out"), st.lists(st.tuples(_texts, st.sampled_from(["stdout", "stderr"])))),
    st.tuples(st.just("wait"), st.floats(0, 3)),
    st.tuples(st.just("stop"), st.none()),
)


@given(steps=st.lists(_step, max_size=20))
def test_bytes_are_bounded_and_each_line_is_shown_or_counted(
    steps: list[tuple[str, object]],
) -> None:
    view = small_view()
    now_s, drains, total_in, out = 0.0, 0, 0, list[bytes]()
    for what, value in steps:
        if what == "out":
            assert isinstance(value, list)
            total_in += sum(text.count("\n") for text, _ in value)
            out += view.from_adapter([output(text, kind) for text, kind in value], now_s)
        elif what == "wait":
            assert isinstance(value, float)
            now_s += value
            if view.due_s is not None and view.due_s <= now_s:
                drains += 1
            out += view.on_time(now_s)
        else:
            drains += view.due_s is not None
            view.from_adapter([], now_s)
            out += view.from_adapter([event("stopped", {"reason": "step"})], now_s)
    drains += view.due_s is not None
    out += view.from_adapter([event("terminated")], now_s)
    shown = [one for one in read(out) if one["event"] == "output"]
    # A character takes up to six bytes of JSON.
    one_tail = LIMITS.tail_bytes * 6 + OVERHEAD
    weight = sum(len(body) for body in out if json.loads(body)["event"] == "output")
    assert weight <= LIMITS.burst_bytes + LIMITS.rate_bytes_s * now_s + drains * one_tail
    lines = sum(
        one["body"]["output"].count("\n") for one in shown if one["body"]["category"] != "console"
    )
    assert lines + view.output.left_out_lines == total_in
    if not drains:
        assert view.output.left_out_lines == 0


def test_with_a_log_point_the_log_gets_what_is_left_out() -> None:
    """VS Code redirects output by default, and a log point's text is output of pydevd alone."""
    view = small_view(redirectOutput=True)
    for one, is_logged in (
        ({"line": 3}, True),
        ({"line": 3, "logMessage": "{x}"}, False),
        ({"line": 3}, True),
    ):
        source = {"path": "/p/a.py"}
        view.from_editor(request(3, "setBreakpoints", source=source, breakpoints=[one]))
        assert view.output.is_logged is is_logged
