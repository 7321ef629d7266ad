"""Values of a JSON object that may hold anything: of the right type and within bounds, or none."""

from __future__ import annotations

import math
from collections.abc import Mapping

_LONGEST = 400
_MOST_ITEMS = 4096


class Fields:
    """One object; other values count as an empty one."""

    def __init__(self, value: object) -> None:
        self._value: Mapping[object, object] = value if isinstance(value, dict) else {}

    def number(self, name: str) -> float:
        """Return a number that is not negative; 0 if there is none."""
        return self.number_or_none(name) or 0.0

    def number_or_none(self, name: str) -> float | None:
        """Return a number that is not negative; None if there is none."""
        return number(self._value.get(name))

    def whole(self, name: str) -> int:
        """Return a whole number that is not negative; 0 if there is none."""
        return int(self.number(name))

    def text(self, name: str) -> str:
        """Return a text, cut where it is too long."""
        value = self._value.get(name)
        return plain_text(value[:_LONGEST]) if isinstance(value, str) else ""

    def flag(self, name: str) -> bool:
        """Return true if it is `true`."""
        return self._value.get(name) is True

    def flag_or_none(self, name: str) -> bool | None:
        """Return a boolean; None if there is none."""
        value = self._value.get(name)
        return value if isinstance(value, bool) else None

    def rows(self, name: str, most: int) -> list[Fields]:
        """Return the objects of a list."""
        return [Fields(one) for one in self.items(name)[:most]]

    def items(self, name: str) -> list[object]:
        """Return a list; none if there is none."""
        value = self._value.get(name)
        return value[:_MOST_ITEMS] if isinstance(value, list) else []

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return the numbers of a list."""
        found = (number(one) for one in self.items(name))
        return tuple(one for one in found if one is not None)

    def inner(self, name: str) -> Fields:
        """Return the object inside."""
        return Fields(self._value.get(name))

    def has(self, name: str) -> bool:
        """True if there is an object of that name."""
        return isinstance(self._value.get(name), dict)

    def has_list(self, name: str) -> bool:
        """True if there is a list of that name."""
        return isinstance(self._value.get(name), list)

    def counts(self, name: str) -> dict[str, float]:
        """Return an object of numbers."""
        value = self._value.get(name)
        pairs = list(value.items())[:_MOST_ITEMS] if isinstance(value, dict) else []
        found = {str(key)[:64]: number(one) for key, one in pairs}
        return {key: one for key, one in found.items() if one is not None}

    def texts(self, name: str) -> dict[str, str]:
        """Return an object of texts."""
        value = self._value.get(name)
        pairs = list(value.items())[:64] if isinstance(value, dict) else []
        return {
            plain_text(str(key)[:64]): plain_text(one[:_LONGEST])
            for key, one in pairs
            if isinstance(one, str)
        }


def plain_text(text: str) -> str:
    """Return a text of JSON without the lone surrogates that no file or terminal takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def number(value: object) -> float | None:
    """Return a number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and value.bit_length() > 80:
        return None
    found = float(value)
    return found if math.isfinite(found) and found >= 0 else None
