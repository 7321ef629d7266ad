"""The output of `tk pull` while it runs and at its end."""

from __future__ import annotations

import pytest

from tunnelkit.cli.commands.files.pull import check_complete, progress_line, show_report
from tunnelkit.errors import ExitCode, MirrorError
from tunnelkit.session.runtime.control_answers import PullAnswer

_ANSWER: PullAnswer = {
    "pulled": ["out/a"],
    "bytes": 2,
    "kept": [],
    "owned": [],
    "mirrored": [],
    "refused": [],
    "unread": [],
    "gone": ["out/b"],
    "uncompared": [],
    "duration_s": 0.1,
}


def test_how_far_and_how_fast() -> None:
    progress = {
        "files": 0,
        "files_total": 1,
        "bytes": 50_000_000,
        "bytes_total": 90_000_000,
        "eta_s": 20.0,
    }
    line = progress_line(progress)
    assert line.startswith("pulling: 0 of 1 file, 50.0 MB of 90.0 MB, 2.0 MB/s, ")
    assert line.endswith(" left")
    for none in (None, 0.0):
        assert progress_line({**progress, "files_total": 2, "eta_s": none}) == (
            "pulling: 0 of 2 files, 50.0 MB of 90.0 MB"
        )


def test_what_could_not_be_read_there_fails_the_command() -> None:
    check_complete(_ANSWER)
    with pytest.raises(MirrorError, match="can't read out/private") as caught:
        check_complete({**_ANSWER, "unread": ["out/private"]})
    assert caught.value.exit_code == ExitCode.MIRROR


def test_what_was_removed_there_meanwhile_is_named_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_report(_ANSWER)
    out, err = capsys.readouterr()
    assert out == "pulled 1 file (2 B) in 0.1 s\n"
    assert err.splitlines() == ["not brought: removed there while they were pulled: out/b"]
