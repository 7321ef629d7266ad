"""The output of `quota` (Linux DiskQuota) and `lfs quota` (Lustre): what is used of which limit."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.evidence.storage import Amount, QuotaView

_HEAD = re.compile(r"Disk quotas for (?P<kind>usr|user|grp|group|prj|project) (?P<name>\S+)")
_KINDS = {"usr": "user", "grp": "group", "prj": "project"}
#: `*`: over the soft limit. `[...]`: of a Lustre of which a part does not answer.
_NUMBER = re.compile(r"\[?([0-9]{1,18})\]?\*?")
#: No time is left over the soft limit.
_OVER = frozenset({"none", "expired"})
_MOST_ROWS = 64
_BLOCK_BYTES = 1024


def parse_quotas(text: str) -> tuple[QuotaView, ...]:
    """Return the rows that have a limit. Blocks are of 1 KiB, as without -h and -s."""
    found: list[QuotaView] = []
    kind, owner, place = "user", "", ""
    for line in text.splitlines():
        if head := _HEAD.match(line.strip()):
            kind, owner = _KINDS.get(head["kind"], head["kind"]), head["name"]
            continue
        words = line.split()
        if len(words) == 1:
            place = words[0]  # a long name has its numbers on the next line
            continue
        if not words:
            continue
        if not _NUMBER.fullmatch(words[0]):
            place, words = words[0], words[1:]
        row = _row(words)
        if row is not None and place and len(found) < _MOST_ROWS:
            found.append(QuotaView(place, kind, owner, *row))
    return tuple(found)


def _row(words: list[str]) -> tuple[Amount | None, Amount | None] | None:
    """Return blocks and files. Each has used, soft, hard, and while it is over the soft limit the
    time that is left; Lustre prints `-` otherwise, quota nothing."""
    blocks, rest = _amount(words, _BLOCK_BYTES)
    if rest is None:
        return None
    files, _ = _amount(rest, 1)
    return (blocks, files) if blocks is not None or files is not None else None


def _amount(words: list[str], unit: int) -> tuple[Amount | None, list[str] | None]:
    numbers = [match for word in words[:3] if (match := _NUMBER.fullmatch(word))]
    if len(numbers) < 3:
        return None, None
    used, soft, hard = (int(match[1]) * unit for match in numbers)
    rest = words[3:]
    grace = ""
    if rest and not _NUMBER.fullmatch(rest[0]):
        grace, rest = rest[0], rest[1:]
    # Its time is over: the soft limit is a hard one now. Until then more can be written.
    limit = soft if soft and grace in _OVER else hard
    return (Amount(used, limit) if limit else None), rest
