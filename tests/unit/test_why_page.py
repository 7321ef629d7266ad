"""docs/why.md has what the registry of codes says, and all codes can be explained."""

from __future__ import annotations

import re

import pytest

from scripts.docslib.verdicts import PAGE, with_sections
from tunnelkit.diagnosis.codes.registry import CODES


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert page == with_sections(page), "python -m scripts.docslib.verdicts"
    assert sorted(re.findall(r"(?m)^### (\S+)$", page)) == sorted(CODES)


@pytest.mark.parametrize("name", CODES)
def test_an_entry_says_what_it_is_how_it_is_known_and_what_to_do(name: str) -> None:
    code = CODES[name]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    for text in (code.meaning, code.found_by, code.remedy):
        assert re.match(r"[A-Z`]", text), text
        assert text.endswith("."), text
