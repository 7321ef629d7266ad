"""Variables in the words of a container's command, by Kubernetes' own rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.agent.agent import _expand
from tunnelkit.agent.processes.container_words import expand
from tunnelkit.debug.loop_command import loop_spec, understand

ENVIRON = {"RANK": "3", "EMPTY": "", "REF": "$(RANK)", "a.b-c": "odd"}


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        ("--rank=$(RANK)", "--rank=3"),
        ("$(RANK)$(RANK)", "33"),
        ("[$(EMPTY)]", "[]"),
        ("$(NONE)", "$(NONE)"),
        ("$$(RANK)", "$(RANK)"),
        ("$$$(RANK)", "$3"),
        ("$$$$", "$$"),
        ("cost $5, $RANK, ${RANK}", "cost $5, $RANK, ${RANK}"),
        ("$(REF)", "$(RANK)"),
        ("$(a.b-c)", "odd"),
        ("$(RANK", "$(RANK"),
        ("$()", "$()"),
        ("$($(RANK))", "$($(RANK))"),
        ("$", "$"),
    ],
)
def test_words_as_kubernetes_expands_them(word: str, expanded: str) -> None:
    assert expand(word, ENVIRON) == expanded


@pytest.mark.parametrize("expands", [False, True])
def test_a_loop_of_a_containers_own_command_has_its_words_expanded(
    monkeypatch: pytest.MonkeyPatch, expands: bool
) -> None:
    monkeypatch.setenv("TK_TEST_RANK", "3")
    word = "--rank=$(TK_TEST_RANK)"
    command = replace(understand(["python", "a.py", word]), expands=expands)
    spec = loop_spec(command, cwd="/", editor_port=1)
    _expand(spec)
    wanted = "--rank=3" if expands else word
    assert (spec["argv"][-1], spec["words"][-1]) == (wanted, wanted)


@given(st.text("$()RANK ", max_size=20))
def test_what_has_no_dollar_stays(word: str) -> None:
    assert expand(word.replace("$", ""), ENVIRON) == word.replace("$", "")
    assert expand(word.replace("$", "$$"), ENVIRON) == word
