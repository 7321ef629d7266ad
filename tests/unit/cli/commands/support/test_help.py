"""What `tk --help` and mistakes on the command line look like."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelkit.cli import fast_path
from tunnelkit.cli.app import build, with_examples_kept
from tunnelkit.cli.registry import COMMANDS

_TK = Path(sys.executable).parent / "tk"


def tk(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `tk` with its output piped, 80 columns wide."""
    return subprocess.run(
        [str(_TK), *args],
        env={**os.environ, "COLUMNS": "80", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def command_of(*path: str) -> Any:
    """The command object behind a path of words."""
    command: Any = typer.main.get_command(build({path[0]} if path else set(COMMANDS)))
    for name in path:
        command = command.commands[name]
    return command


def all_commands() -> Iterator[tuple[str, ...]]:
    for name in COMMANDS:
        command = command_of(name)
        yield from (
            ((name, sub) for sub in command.commands)
            if hasattr(command, "commands")
            else ((name,),)
        )


@pytest.mark.parametrize("path", list(all_commands()), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    done = tk(*path, "--help")
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in done.stdout
    example = re.compile(rf"(^|[ (\"]){re.escape('tk ' + ' '.join(path))}\b")
    assert [line for line in lines[1:] if example.search(line)], done.stdout


@pytest.mark.parametrize("path", list(all_commands()), ids=" ".join)
def test_every_option_and_argument_is_explained(path: tuple[str, ...]) -> None:
    for parameter in command_of(*path).params:
        assert getattr(parameter, "help", None), parameter.name


def test_the_overview() -> None:
    done = tk("--help")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not re.search(r"[\x1b│╭╮─\[]/?(bold|/|dim)|\x1b|│", done.stdout)
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", done.stdout, re.MULTILINE), name
    assert re.search(r"^  tk up node4 --gpus 1 --cpus 2 ", done.stdout, re.MULTILINE)
    assert tk("-h").stdout == done.stdout


def test_without_a_command_there_is_help_and_a_code() -> None:
    done = tk()
    assert done.returncode == 2
    assert "Start and end:" in done.stderr and not done.stdout


def test_the_version() -> None:
    done = tk("--version")
    assert done.returncode == 0
    assert re.fullmatch(r"tk \d+\.\d+\.\d+\n", done.stdout)


def test_a_mistake_is_one_line() -> None:
    done = tk("up", "--gpu", "1")
    assert done.returncode == 2
    assert not done.stdout
    assert re.fullmatch(
        r"tk: no such option: --gpu.* — `tk up --help` shows how it is used\n", done.stderr
    )


def test_examples_keep_their_lines_and_text_is_wrapped() -> None:
    text = with_examples_kept("First.\n\n    tk a\n    tk b\n\n    Then text.\n\n    tk c\n    ")
    assert text.split("\n\n")[0] == "First."
    paragraphs = [[line.strip(" ") for line in one.split("\n")] for one in text.split("\n\n")]
    assert paragraphs[1:] == [["\b", "tk a", "tk b"], ["Then text."], ["\b", "tk c"]]


# -- completion -----------------------------------------------------------


def test_completion_lists_the_commands(tmp_path: Path) -> None:
    environ = {"_TK_COMPLETE": "complete_bash", "COMP_WORDS": "tk ", "COMP_CWORD": "1"}
    done = tk(**environ, XDG_CACHE_HOME=str(tmp_path))
    assert set(done.stdout.split()) == set(COMMANDS)


def test_completion_lists_options(tmp_path: Path) -> None:
    environ = {"_TK_COMPLETE": "complete_bash", "COMP_WORDS": "tk up --p", "COMP_CWORD": "2"}
    offered = tk(**environ, XDG_CACHE_HOME=str(tmp_path)).stdout.split()
    assert set(offered) == {"--partition", "--profile"}


def test_the_completion_script_is_printed() -> None:
    # Typer looks at its ancestors for the shell, so one has to be there.
    argv = ["bash", "-c", '"$0" --show-completion; exit $?', str(_TK)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "_TK_COMPLETE=complete_bash" in done.stdout


# -- the fast path --------------------------------------------------------


#: Pieces of command lines: plain ones, and all that only typer understands.
_WORDS = st.sampled_from(
    [
        *("node4", "8888", "1", "0", "2.5", "1e3", "-1", "+5", "٣", "1_0", "true", "", "a=b"),
        *("python", "x.py", "-c", "-n", "-n5", "-f", "--", "-", "--help", "-h", "--json", "--wait"),
        *("--timeout", "--timeout=5", "--gpus", "--gpus=2", "--node", "--nodes", "--loop", "--tim"),
        *("--sync", "--keep", "--rank", "--standby", "--no-standby", "--cancel", "--port"),
        *("--ours", "--lines", "--debug"),
    ]
)


@given(st.sampled_from(sorted(fast_path.FAST)), st.lists(_WORDS, max_size=5))
@settings(max_examples=1500)
def test_the_fast_path_takes_nothing_that_typer_takes_otherwise(
    name: str, words: list[str]
) -> None:
    values = fast_path.accepts([name, *words])
    if values is None:
        return
    called = by_typer(name, words)
    assert called is not None, "typer would have refused it"
    assert {key: called[key] for key in values} == values
    others = called.keys() - values.keys()
    assert {key: called[key] for key in others} == {key: defaults_of(name)[key] for key in others}


def by_typer(name: str, words: list[str]) -> dict[str, Any] | None:
    """The parameters with which typer calls the command; None if it refuses the line."""
    command = command_of(name)
    try:
        context = command.make_context(name, list(words), resilient_parsing=False)
    except SystemExit:
        return None
    except Exception as error:
        assert hasattr(error, "format_message") or type(error).__name__ == "Exit", error
        return None
    # What typer makes of it last: a list, or None for an empty one with that default.
    return {
        key: (list(value) or None) if isinstance(value, tuple | list) else value
        for key, value in context.params.items()
    }


def defaults_of(name: str) -> dict[str, Any]:
    """The function's own defaults, by parameter."""
    signature = inspect.signature(fast_path.declared(name).function)
    return {key: one.default for key, one in signature.parameters.items()}


@pytest.mark.parametrize("name", sorted(fast_path.FAST))
def test_every_common_command_has_the_fast_path(name: str) -> None:
    options = {
        word: parameter.is_flag
        for parameter in command_of(name).params
        if parameter.param_type_name == "option"
        for word in (*parameter.opts, *parameter.secondary_opts)
        if word not in ("-h", "--help")
    }
    declared = fast_path.declared(name)
    assert {word: one[2] is not None for word, one in declared.options.items()} == options


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], {}),
        (["--sync"], {"sync_first": True}),
        (["--timeout", "5", "--json"], {"timeout": 5.0, "as_json": True}),
        (["--timeout"], None),
        (["--timeout", "soon"], None),
        (["--timeout", "--json"], None),
        (["--timeout=5"], None),
        (["--help"], None),
        (["x"], None),
    ],
)
def test_the_fast_path_takes_what_is_plainly_right(
    words: list[str], values: dict[str, Any] | None
) -> None:
    assert fast_path.accepts(["ready", *words]) == values


def test_the_words_of_a_program_are_its_own() -> None:
    assert fast_path.accepts(["run", "--node", "node2", "ls", "-l", "--json"]) == {
        "node": "node2",
        "command": ["ls", "-l", "--json"],
    }
    assert fast_path.accepts(["run", "-x"]) is None
    assert fast_path.accepts(["run"]) is None
    assert fast_path.accepts(["up", "node4", "--gpus", "1", "--exclusive"]) == {
        "node": "node4",
        "gpus": 1,
        "exclusive": True,
    }


def test_both_ways_call_the_same_function() -> None:
    """`--timeout=5` goes through typer; the answer is the same."""
    plain, through_typer = tk("ready", "--timeout", "5"), tk("ready", "--timeout=5")
    assert plain.stderr == through_typer.stderr
    assert plain.returncode == through_typer.returncode


@pytest.mark.parametrize("group", [(), ("lab",), ("config",)], ids=lambda group: " ".join(group))
def test_what_a_command_is_for_is_told_in_full(group: tuple[str, ...]) -> None:
    """Nothing is cut off with dots on a terminal of 80 columns."""
    heading = "Commands:" if group else "Start and end:"
    _, _, listed = tk(*group, "--help").stdout.partition(heading)
    cut = [line for line in listed.splitlines() if line.endswith("...")]
    assert listed
    assert not cut, "\n".join(cut)


@pytest.mark.parametrize("path", [("run",), ("submit",), ("lab", "rtt")], ids=" ".join)
def test_an_argument_is_shown_by_its_name_alone(path: tuple[str, ...]) -> None:
    command = command_of(*path)
    ctx = command.make_context(path[-1], [], resilient_parsing=True)
    for one in command.get_params(ctx):
        if one.param_type_name == "argument":
            assert one.get_help_record(ctx)[0] == one.metavar
