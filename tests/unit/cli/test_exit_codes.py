"""The exit codes that README.md promises are those of errors.ExitCode."""

from __future__ import annotations

import re
from pathlib import Path

from tunnelkit import errors
from tunnelkit.cli.commands.support.help import text_of
from tunnelkit.errors import MEANINGS, ExitCode, TunnelkitError

README = Path(__file__).parents[3] / "README.md"
_ROW = re.compile(r"^\| *(\d+) *\| *`?([A-Z_]+)`? *\| *(.+?) *\|$", re.MULTILINE)


def test_the_table_in_the_readme_is_complete_and_right() -> None:
    rows = _ROW.findall(README.read_text())
    assert [(int(code), name) for code, name, _ in rows] == [
        (int(code), code.name) for code in ExitCode
    ]
    # One table for README, help and code.
    assert {int(code): meaning for code, _, meaning in rows} == {
        int(code): meaning for code, meaning in MEANINGS.items()
    }
    assert list(MEANINGS) == list(ExitCode) and len(set(MEANINGS.values())) == len(MEANINGS)


def test_the_help_on_exit_codes_has_them_all() -> None:
    text = text_of("exit-codes")
    for code, meaning in MEANINGS.items():
        assert re.search(rf"^ +{int(code)}  {re.escape(meaning)}$", text, re.MULTILINE)


def test_every_error_class_has_a_code_that_is_explained() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, TunnelkitError):
            assert kind.exit_code in MEANINGS and kind.exit_code is not ExitCode.OK


def test_no_code_is_one_that_a_shell_means_something_by() -> None:
    taken = {126, 127, *range(129, 256)} - {int(ExitCode.INTERRUPTED)}
    assert not taken & {int(code) for code in ExitCode}


def test_every_error_keeps_its_class_over_the_control_socket() -> None:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, TunnelkitError):
            sent = kind("what", cause="why", hint="what to do", transient=True)
            again = TunnelkitError.from_json(sent.to_json())
            assert type(again) is kind, name
            assert again.to_json() == sent.to_json()


def test_an_error_is_one_line() -> None:
    error = TunnelkitError("can't\nstart", cause="one\r\n\ttwo", hint="do that")
    assert error.one_line() == "can't start: one two — do that"
