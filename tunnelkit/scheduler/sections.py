"""One script with several commands: each one's output and exit code, between marks.

The mark is made for each call, so that no job's name and no log can pretend to be a section.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Begins a script. $1: the mark. `section NAME COMMAND...` runs a command for 10 s at most; its
#: stderr follows its stdout.
PREAMBLE = r"""
mark=$1
shift
section() {
  name=$1
  shift
  printf '\n%s %s\n' "$mark" "$name"
  timeout 10 "$@" 2>&1 </dev/null
  printf '\n%s-code %s\n' "$mark" "$?"
}
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A command's output. code: 124 after 10 s without an end; 127 if it is not there."""

    text: str
    code: int

    @property
    def failure(self) -> str:
        """The reason why it has no answer, in one line; "" if it has one."""
        if self.code == 0:
            return ""
        if self.code == 124:
            return "no answer within 10 s"
        lines = self.text.strip().splitlines()
        return lines[-1].strip()[:200] if lines else f"exit code {self.code}"


def parse_sections(text: str, mark: str) -> dict[str, Section]:
    """Return the sections by name; one without an end is not there."""
    found: dict[str, Section] = {}
    for part in f"\n{text}".split(f"\n{mark} ")[1:]:
        name, _, rest = part.partition("\n")
        body, end, code = rest.partition(f"\n{mark}-code ")
        number = code.split("\n", 1)[0].strip()
        if end and number.isdigit():
            found[name.strip()] = Section(body.removesuffix("\n"), int(number))
    return found
