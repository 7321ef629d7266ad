"""TAB without an app: the table holds what typer would offer, and any line is understood."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cli.app import build
from tunnelkit.cli.completion import engine, sources
from tunnelkit.cli.registry import COMMANDS
from tunnelkit.config.schema import LinkName, SchedulerName
from tunnelkit.debug.ranks.terms import FAILED, STATE_WORDS
from tunnelkit.simulate.runners.choice import NAMES

TABLE = engine.make()


def offers(*words: str) -> list[str]:
    """What is offered at the end of these words, the last of which is being typed."""
    return list(engine.offers(TABLE, engine.CommandLine(words[:-1], words[-1])))


def walk(table: engine.Command, command: Any, path: tuple[str, ...]) -> Any:
    yield table, command, path
    below = getattr(command, "commands", {})
    assert set(table["commands"]) == {name for name, one in below.items() if not one.hidden}
    for name, one in table["commands"].items():
        yield from walk(one, below[name], (*path, name))


def test_the_table_has_every_command_option_and_argument() -> None:
    top = typer.main.get_command(build(set(COMMANDS)))
    seen = 0
    for table, command, path in walk(TABLE, top, ()):
        options = {
            word: not one.is_flag
            for one in command.params
            if one.param_type_name == "option" and not one.hidden
            for word in [*one.opts, *one.secondary_opts]
        }
        ours = {word: takes for word, (takes, _, _) in table["options"].items()}
        assert ours == {"-h": False, "--help": False} | options, path
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        assert [many for _, many in table["arguments"]] == [one.nargs == -1 for one in arguments]
        hows = [how for how, _ in table["arguments"]]
        hows += [how for _, how, _ in table["options"].values()]
        for how in filter(None, hows):
            assert callable(getattr(sources, how)), (path, how)
        assert table["help"] or not path, path
        seen += 1
    assert seen > len(COMMANDS)


def test_what_is_completed_where(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nodes", "partitions", "jobs", "own_nodes", "forwards"):
        monkeypatch.setattr(sources, name, lambda typed, name=name: [f"{name} {typed}"])
    assert offers("up", "n") == ["nodes n"]
    assert offers("up", "--gpus", "2", "") == ["nodes "]
    assert offers("up", "--gpus", "") == []
    assert offers("up", "--json", "") == ["nodes "]
    assert offers("up", "-p") == [] and offers("up", "--part") == ["--partition"]
    assert offers("up", "--partition", "-") == ["partitions -"]
    assert offers("up", "--attach-job", "4") == ["jobs 4"]
    assert offers("up", "node1", "") == []
    assert offers("shell", "") == ["own_nodes "]
    assert offers("forward", "8888", "") == ["forwards "]
    assert offers("forward", "--", "-") == ["forwards -"]
    for command in ("run", "shell"):
        assert offers(command, "--node", "") == ["own_nodes "]
    assert offers("run", "python", "--he") == []
    assert offers("lab", "u") == ["up"] and offers("lab", "up", "--net") == ["--netns"]
    assert offers("--vers") == ["--version"]
    assert "up" in offers("--debug", "")
    assert offers("nonsense", "") == []


def test_values_of_a_fixed_set_are_offered() -> None:
    assert offers("up", "--link", "") == list(get_args(LinkName))
    assert offers("doctor", "--link", "kube") == ["kubectl-proxy", "kubectl-exec"]
    for command in ("up", "init"):
        assert offers(command, "--scheduler", "") == list(get_args(SchedulerName))
    for words in (("demo",), ("lab", "up")):
        assert offers(*words, "--scheduler", "") == ["auto", "slurm", "none"]
    assert offers("simulate", "--in", "") == list(NAMES)
    assert offers("why", "--start-sooner", "") == ["auto"]
    assert offers("loop", "--rank", "") == ["all"]
    for command in ("ranks", "console", "interrupt"):
        assert offers(command, "") == ["all", *STATE_WORDS, FAILED]


def test_a_value_after_an_equals_sign_is_offered() -> None:
    """zsh and fish pass one word; bash passes the option, the sign and the value."""
    assert offers("up", "--link=para") == ["--link=paramiko"]
    assert offers("up", "--link", "=", "para") == ["paramiko"]
    assert offers("up", "--link", "=") == list(get_args(LinkName))
    assert offers("up", "--json=") == [] and offers("run", "prog", "--node=") == []


@given(st.text(max_size=30), st.sampled_from(["bash", "zsh", "fish"]), st.integers(-2, 9))
def test_any_line_is_understood(text: str, shell: str, cursor: int) -> None:
    environ = {"_TK_COMPLETE": f"complete_{shell}"}
    environ |= {"COMP_WORDS": f"tk {text}", "COMP_CWORD": str(cursor)}
    environ["_TYPER_COMPLETE_ARGS"] = f"tk {text}"
    line = engine.line_of(environ)
    assert isinstance(line.typed, str)
    if not any(word in ("up", "shell") for word in line.words):
        engine.offers({**TABLE, "commands": {}}, line)


def test_what_zsh_evaluates_stays_words() -> None:
    told = engine._zsh({"a'b": 'say "$(reboot)" `now`: yes'})
    assert told == '_arguments \'*: :(("a\'\'b":"say ""\\$(reboot)"" \\`now\\`\\\\: yes"))\''
    assert engine._zsh({}) == "_files"


def test_other_shells_are_typers() -> None:
    assert engine.answer({"_TK_COMPLETE": "complete_powershell"}) is None
    assert engine.answer({"_TK_COMPLETE": "source_bash"}) is None


def test_a_completer_that_fails_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(kind: str) -> list[str]:
        raise RuntimeError

    monkeypatch.setattr(sources, "_recall", broken)
    assert sources.nodes("") == []
