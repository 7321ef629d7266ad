"""One script with several commands: each one's output and exit code, between marks.

The mark is made for each call, so that no job's name and no log can pretend to be a section.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Begins a script. $1: the mark. `bounded COMMAND...` runs a command for 10 s at most, its stderr
#: after its stdout, returns its exit code, and ends one that prints more than any answer has.
#: `section NAME COMMAND...` is the same between marks. `plain FILE`: it is a regular file, and
#: none of the kernel's, which may have no end.
PREAMBLE = r"""
mark=$1
shift
bounded() {
  { code=$( {
    { timeout 10 "$@" 2>&1 </dev/null 3>&- 4>&-; echo "$?" >&3; } | head -c 33554432 >&4 3>&-
  } 3>&1 ); } 4>&1
  return "${code:-1}"
}
plain() {
  case $(timeout 5 readlink -f -- "$1") in /proc/* | /sys/*) return 1 ;; esac
  timeout 5 test -f "$1"
}
section() {
  name=$1
  shift
  printf '\n%s %s\n' "$mark" "$name"
  bounded "$@"
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
