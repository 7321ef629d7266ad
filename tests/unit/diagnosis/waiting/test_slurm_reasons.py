"""Every reason that Slurm prints has a code, a sentence and somebody who can act."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.slurm_reasons import SENTENCES, words
from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.verdict import Actor, Stage
from tunnelkit.diagnosis.waiting.reasons.limit_words import limit_word
from tunnelkit.diagnosis.waiting.slurm_reasons import Reason, reason_of


def test_the_list_is_all_of_todays_words_and_those_of_old() -> None:
    assert len(words()) == len(set(words())) == 216 + 24
    assert {"MpiPortsBusy", "AssocGrpCPUMinsLimit", "FrontEndDown"} <= set(words())


@pytest.mark.parametrize("text", [*words(), *SENTENCES])
def test_each_has_a_sentence_and_an_actor(text: str) -> None:
    reason = reason_of(text)
    assert reason.known
    assert CODES[reason.code].stage is Stage.WAITING
    assert isinstance(reason.actor, Actor)
    assert 15 < len(reason.sentence) < 190 and "\n" not in reason.sentence
    assert not re.search(r"(?i)slurm says|says", reason.sentence)
    if text.isalnum() and len(text) > 12:
        assert text not in reason.sentence, "the word itself is no explanation"


@pytest.mark.parametrize(("text", "code"), SENTENCES.items())
def test_sentences_as_squeue_and_as_scontrol_print_them(text: str, code: str) -> None:
    assert reason_of(text).code == code
    assert reason_of(text.replace(" ", "_")).code == code


@pytest.mark.parametrize(
    ("word", "code", "field", "what"),
    [
        ("AssocGrpGRES", "limit-account", "GrpTRES", "gres"),
        ("AssocGrpCPUMinutesLimit", "budget", "GrpTRESMins", "cpu"),
        ("AssocGrpCPURunMinutesLimit", "limit-account", "GrpTRESRunMins", "cpu"),
        ("AssocGrpWallLimit", "budget", "GrpWall", "wall"),
        ("AssocMaxJobsLimit", "limit-user", "MaxJobs", "jobs"),
        ("AssocMaxWallDurationPerJobLimit", "limit-job", "MaxWallPJ", "wall"),
        ("AssocMaxCpuPerNode", "limit-job", "MaxTRESPN", "cpu"),
        ("QOSGrpGRES", "limit-qos", "GrpTRES", "gres"),
        ("QOSGrpMemoryMinutes", "budget", "GrpTRESMins", "mem"),
        ("QOSMaxJobsPerUserLimit", "limit-user", "MaxJobsPU", "jobs"),
        ("QOSMaxGRESPerUser", "limit-user", "MaxTRESPU", "gres"),
        ("QOSMaxMemoryMinutesPerJob", "limit-job", "MaxTRESMinsPJ", "mem"),
        ("QOSMinGRES", "limit-job", "MinTRESPJ", "gres"),
        ("MaxGRESPerAccount", "limit-account", "MaxTRESPA", "gres"),
        ("MaxCpuRunMinsPerUser", "limit-user", "MaxTRESRunMinsPU", "cpu"),
    ],
)
def test_which_limit_a_word_names(word: str, code: str, field: str, what: str) -> None:
    found = limit_word(word)
    assert found is not None
    assert (found.code, found.field, found.what) == (code, field, what)
    assert ("account" if word.startswith("Assoc") else "QOS") == found.owner


def test_only_minutes_of_the_past_are_a_budget() -> None:
    for word in words():
        minutes = re.search(r"Min(ute)?s", word) is not None and "PerJob" not in word
        budget = (minutes and "Run" not in word) or "GrpWall" in word or word == "QOSUsageThreshold"
        assert (reason_of(word).code == "budget") == budget, word


def test_words_that_name_no_limit() -> None:
    for word in ("MaxMemPerLimit", "MaxPoweredUpNodes", "GrpCpu", "QOSMax", "AssocMinJobs"):
        assert limit_word(word) is None, word


def test_the_names_that_slurm_adds_are_kept() -> None:
    assert "node[4-5]" in reason_of("ReqNodeNotAvail, UnavailableNodes:node[4-5]").sentence
    assert "my_course" in reason_of("Reservation_my_course_was_deleted").sentence
    assert (
        "gpu allows lab not poor"
        in reason_of(
            "Job's account not permitted to use this partition (gpu allows lab not poor)"
        ).sentence
    )


def test_a_reason_of_a_slurm_to_come() -> None:
    found = reason_of("SomethingNewOf2031")
    assert (found.code, found.known) == ("waiting-unknown", False)
    assert "SomethingNewOf2031" in found.sentence
    # Its grammar is Slurm's: a limit on a new kind of job or resource is still a limit.
    assert reason_of("QOSMaxGRESRunMinutesPerUser").code == "limit-user"


@given(st.text(max_size=400) | st.none())
def test_any_text_is_a_reason(text: str | None) -> None:
    found = reason_of(text)
    assert isinstance(found, Reason)
    assert found.code in CODES
    assert found.sentence and len(found.sentence) < 700


_PIECES = (
    "Assoc QOS Grp Max Min Cpu CPU Mem Memory Node GRES License BB Jobs SubmitJobs Wall Minutes "
    "RunMins Per Job Node User Account Limit Reservation_ Job's_ ReqNodeNotAvail, ( ) _"
)


@given(st.lists(st.sampled_from(_PIECES.split(" ")), max_size=8).map("".join))
def test_any_words_of_its_grammar_are_a_reason(text: str) -> None:
    found = reason_of(text)
    assert found.code in CODES and found.sentence
