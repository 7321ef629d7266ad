"""Many ranks and their answers, said briefly: `0-3,7`, one block for equal answers, a grid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Members that a sequence needs to be written with a step.
_LEAST_STEPS = 4
#: Numbers that are worth a grid.
_LEAST_GRID = 4
#: Of an integer that is compared exactly; Python refuses to read one with over 4,300.
_MOST_DIGITS = 4_000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}")
_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|nan)",
)


def fold_ranks(ranks: Iterable[int]) -> str:
    """Write ranks as `0-3,7`, ascending, each once; "" for none.

    From 4 members on, a sequence with equal distances is written as first-last/step: `0-12/4`.
    """
    members = sorted(set(ranks))
    parts: list[str] = []
    at = 0
    while at < len(members):
        first = members[at]
        last = _end_of_sequence(members, at)
        length = last - at + 1
        step = members[at + 1] - first if length > 1 else 0
        if step == 1:
            parts.append(f"{first}-{members[last]}")
        elif length >= _LEAST_STEPS:
            parts.append(f"{first}-{members[last]}/{step}")
        else:
            parts.append(str(first))
            last = at
        at = last + 1
    return ",".join(parts)


def unfold_ranks(text: str) -> tuple[int, ...]:
    """Return the ranks that `fold_ranks` has written. Raises ValueError."""
    ranks: set[int] = set()
    for part in filter(None, text.split(",")):
        ends, _, step = part.partition("/")
        first, _, last = ends.partition("-")
        ranks.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return tuple(sorted(ranks))


def _end_of_sequence(members: list[int], at: int) -> int:
    """Index of the last member that follows `members[at]` with equal distances."""
    end = at
    while end + 1 < len(members) and (
        end == at or members[end + 1] - members[end] == members[at + 1] - members[at]
    ):
        end += 1
    return end


@dataclass(frozen=True)
class AnswerBlock:
    """Ranks with the same answer.

    ranks: ascending. text: as the lowest rank gave it. addresses_differ: the others' texts have
    other object addresses.
    """

    ranks: tuple[int, ...]
    text: str
    addresses_differ: bool = False


def fold_answers(answers: Mapping[int, str]) -> list[AnswerBlock]:
    """Join the ranks whose answers are equal but for object addresses, by their lowest rank.

    An address is ` at 0x` with 6 or more hexadecimal digits.
    """
    classes: dict[tuple[str, ...], list[int]] = {}
    for rank in sorted(answers):
        classes.setdefault(tuple(_ADDRESS.split(answers[rank])), []).append(rank)
    return [
        AnswerBlock(
            tuple(ranks),
            answers[ranks[0]],
            any(answers[rank] != answers[ranks[0]] for rank in ranks),
        )
        for ranks in classes.values()
    ]


@dataclass(frozen=True)
class NumberGrid:
    """Numbers that all differ, as the ranks wrote them.

    values: (rank, number), by rank. minimum, maximum: among the numbers, nan aside; "nan" if there
    is no other.
    """

    minimum: str
    maximum: str
    values: tuple[tuple[int, str], ...]


def number_grid(answers: Mapping[int, str]) -> NumberGrid | None:
    """The answers that are one number each, if they are 4 or more and all differ; else None.

    A number is an int or float as Python writes it, nan and inf included. Numbers differ by value:
    1 and 1.0 are equal. Other answers are left out; `fold_answers` has them.
    """
    texts = {rank: answers[rank].strip() for rank in sorted(answers)}
    numbers = {
        rank: number for rank, text in texts.items() if (number := _number(text)) is not None
    }
    ordered = sorted(
        (rank for rank in numbers if not _is_nan(numbers[rank])), key=numbers.__getitem__
    )
    nans = len(numbers) - len(ordered)
    if len(numbers) < _LEAST_GRID or nans > 1:
        return None
    if len({numbers[rank] for rank in ordered}) < len(ordered):
        return None
    return NumberGrid(
        minimum=texts[ordered[0]] if ordered else "nan",
        maximum=texts[ordered[-1]] if ordered else "nan",
        values=tuple((rank, texts[rank]) for rank in numbers),
    )


def _number(text: str) -> int | float | None:
    """An int stays one: as a float, large ones would seem equal."""
    if _INT.fullmatch(text) and len(text) <= _MOST_DIGITS:
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else None


def _is_nan(number: int | float) -> bool:
    return number != number
