"""Interleaved rounds, medians and ratios: the only statistics here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles


@dataclass
class Series:
    """What one way showed in one measure, one number a round."""

    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """First and third quartile."""
        if len(self.values) < 2:
            return self.median, self.median
        low, _, high = quantiles(self.values, n=4, method="inclusive")
        return low, high


def interleaved(names: list[str], rounds: int, what: str) -> Iterator[str]:
    """Every name once a round, first and last in turn, so that a busy moment hits all alike."""
    for number in range(rounds):
        print(f"  {what}: round {number + 1}/{rounds}", file=sys.stderr)
        shift = number % len(names)
        yield from names[shift:] + names[:shift]


def ratio(one: Series, other: Series) -> float:
    """The median over rounds of one/other: both of a round ran in the same minute."""
    return median(a / b for a, b in zip(one.values, other.values, strict=True))


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def to_json(measures: Mapping[str, Mapping[str, Series]]) -> dict[str, object]:
    """measure -> way -> median, quartiles and every value."""
    return {
        measure: {
            way: {"median": series.median, "quartiles": series.spread, "values": series.values}
            for way, series in ways.items()
        }
        for measure, ways in measures.items()
    }
