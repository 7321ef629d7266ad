"""The output of `tk pull` while it runs and at its end."""

from __future__ import annotations

import pytest

from tunnelkit.cli.commands.files.pull import check_complete, progress_line
from tunnelkit.errors import ExitCode, MirrorError
from tunnelkit.session.runtime.control_answers import PullAnswer


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
    answer: PullAnswer = {
        "pulled": ["out/a"],
        "bytes": 2,
        "kept": [],
        "owned": [],
        "mirrored": [],
        "refused": [],
        "unread": [],
        "duration_s": 0.1,
    }
    check_complete(answer)
    with pytest.raises(MirrorError, match="can't read out/private") as caught:
        check_complete({**answer, "unread": ["out/private"]})
    assert caught.value.exit_code == ExitCode.MIRROR
