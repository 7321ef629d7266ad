"""`tk top` as text and on its screen: tables, sparklines, keys, a node's escape sequences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from textual.widgets import DataTable, Static

from tests.unit.diagnosis.top.test_rows import look, rank
from tunnelkit.cli.views.top import screen as screen_module
from tunnelkit.cli.views.top.frames import TopSource
from tunnelkit.cli.views.top.screen import TopApp
from tunnelkit.cli.views.top.show import _install_textual, text_of
from tunnelkit.cli.views.top.tables import Recent, Show, headline, sparkline, table_of
from tunnelkit.diagnosis.evidence.window import GpuView, ProcessView
from tunnelkit.diagnosis.running.look import Look
from tunnelkit.diagnosis.top.frame import TopInfo
from tunnelkit.diagnosis.top.history import TopHistory
from tunnelkit.diagnosis.top.rows import gpu_rows, node_row, process_rows, silent_node, thread_rows
from tunnelkit.errors import SchedulerError

SOURCE = TopSource(None, None, None)


def frame(shown: Look, at_s: float = 0.0, history: TopHistory | None = None) -> TopInfo:
    history = history or TopHistory()
    rows, gpus = process_rows(shown), gpu_rows(shown)
    history.add(at_s, rows, gpus)
    return {
        "job_id": "4711",
        "time_s": at_s,
        "state": "RUNNING",
        "remaining_s": 4360.0,
        "sampled_s": 2.0,
        "nodes": [*(node_row(shown, one) for one in shown.windows), silent_node("n9", "is gone")],
        "rows": rows,
        "gpus": gpus,
        "threads": thread_rows(shown),
        "verdict": None,
        "notes": [],
        "history": history.info([one["key"] for one in rows]),
    }


FOUR = frame(look(rank(0), rank(1), rank(2, 0.9, 7.8), rank(3)))


def test_text_marks_the_worst_and_names_silent_nodes() -> None:
    lines = text_of(FOUR, Show.RANKS, history=False)
    assert lines[0] == "job 4711 · running · 1 h 12 min left · 2 nodes · 4 ranks"
    assert lines[1] == "  n9: is gone"
    titles = "rank node cpu recent waits memory disk/s state"
    assert lines[2].split() == titles.split()
    assert lines[5].split()[:5] == ["2", "▲", "node1", "90%", "▇"]
    assert lines[5].endswith("sleeps (differs: waits for CPUs)")
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize("show", Show)
def test_every_view_has_lines(show: Show) -> None:
    gpu = GpuView(0, "GPU-1", "A100", busy=(98.0,), power_w=(250.0,), processes={100: 1})
    lines = text_of(frame(look(rank(0), gpus=(gpu,))), show, history=True)
    assert len(lines) >= 4
    empty = frame(look())
    assert text_of(empty, show, history=False)


@pytest.mark.parametrize(
    ("busy", "words"),
    [
        ([()], "1 GPU"),
        ([(9.0,)], "1 GPU, 9 % busy"),
        ([(98.0,), (9.0,), ()], "3 GPUs, 9 to 98 % busy"),
    ],
)
def test_the_first_line_says_how_busy_the_gpus_are(
    busy: list[tuple[float, ...]], words: str
) -> None:
    gpus = [
        GpuView(at, f"GPU-{at}", "A100", busy=one, processes={100: 1})
        for at, one in enumerate(busy)
    ]
    assert headline(frame(look(rank(0), gpus=tuple(gpus)))).endswith(f" · {words}")


def test_what_a_node_sends_does_not_reach_the_terminal_raw() -> None:
    nasty = ProcessView(1, name="\x1b[2J\nevil", run=1.0)
    text = "\n".join(text_of(frame(look(nasty)), Show.RANKS, history=True))
    assert "\x1b" not in text and "\\x1b[2J" in text
    assert len(text.splitlines()) < 9
    assert "\x1b" not in headline({**FOUR, "state": "\x1b[31m"})


def test_sparklines() -> None:
    assert sparkline([0.0, 0.5, 1.0, None, 7.0], 1.0) == "▁▅█ █"
    assert sparkline([0.0, 9.0], 0.0) == "▁▁"
    recent = Recent()
    for run in (0.0, 1.0):
        recent.add(frame(look(rank(0, run), rank(1))))
    assert recent.line("node1:rank 0", 1.0) == "▁█"
    recent.add(frame(look(rank(1))))
    assert recent.line("node1:rank 0", 1.0) == ""


def test_history_says_how_long_and_how_much() -> None:
    history = TopHistory()
    for at in range(30):
        newest = frame(look(rank(0, at / 30), rank(1)), at * 10.0, history)
    lines = text_of(newest, Show.RANKS, history=True)
    assert "the last 4 min 50 s" in lines[-3]
    assert lines[-2].split()[1:6] == ["0", "0", "50", "97", "%"]
    assert "no history yet" in text_of(FOUR, Show.RANKS, history=True)[-1]


async def test_the_screen_follows_the_frames_and_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def frames(source: TopSource) -> AsyncGenerator[TopInfo | str]:
        yield FOUR
        yield "the session is gone; trying again"
        yield frame(look(rank(0), rank(1), rank(2), rank(3)))
        await asyncio.Event().wait()

    monkeypatch.setattr(screen_module, "patient_frames", frames)
    app = TopApp(SOURCE, Show.RANKS)
    async with app.run_test(size=(110, 30)) as pilot:
        await pilot.pause()
        table = app.query_one(DataTable)
        assert (table.row_count, len(table.columns)) == (4, 9)
        assert "job 4711" in str(app.query_one("#headline", Static).render())
        await pilot.press("n")
        assert table.row_count == 2
        await pilot.press("t", "g", "r")
        assert table.row_count == 4
        await pilot.press("q")
    assert app.failure is None


async def test_the_screen_ends_with_the_job_and_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ends(source: TopSource) -> AsyncGenerator[TopInfo | str]:
        yield FOUR

    async def fails(source: TopSource) -> AsyncGenerator[TopInfo | str]:
        raise SchedulerError("job 4711 does not run")
        yield FOUR

    for frames, words, fault in ((ends, "job 4711 has ended", False), (fails, "", True)):
        monkeypatch.setattr(screen_module, "patient_frames", frames)
        app = TopApp(SOURCE, Show.RANKS)
        async with app.run_test() as pilot:
            await pilot.pause()
        assert app.last_words.startswith(words)
        assert (app.failure is not None) == fault


def test_the_table_has_a_gpu_only_where_there_is_one() -> None:
    assert "gpu" not in table_of(FOUR, Show.RANKS, Recent()).columns


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("/home/me/.local/share/pipx/venvs/tunnelkit/bin/python", "pipx inject tunnelkit textual"),
        (
            "/home/me/.local/share/uv/tools/tunnelkit/bin/python",
            "uv pip install --python /home/me/.local/share/uv/tools/tunnelkit/bin/python textual",
        ),
        ("/home/me/venv/bin/python", "pip install 'tunnelkit[top]'"),
    ],
)
def test_the_hint_names_the_command_of_the_tool_that_installed_tk(
    python: str, command: str
) -> None:
    assert _install_textual(python) == command
