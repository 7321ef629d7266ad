"""Who authenticated at which sshd, how often and how: read from the sshds' own logs.

Every test of faults is held to a budget: one login a host, nobody refused, and nobody asked
more or less often than a person has acted. Who cuts a connection says how often it comes back:

    @pytest.mark.logins(3)                  at most 3 at each host
    @pytest.mark.logins(login=3, node1=2)   one at all others
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tunnelkit.lab import LabInfo
from tunnelkit.lab.layout import HOSTS, Layout

#: One line of sshd's for each attempt (LogLevel VERBOSE). ssh's first question, which methods
#: there are, is put as an attempt with none.
_ATTEMPT = re.compile(
    r"^(?P<how>Accepted|Partial|Failed|Postponed) (?P<method>[\w/-]+) for "
    r"(?:invalid user )?(?P<account>\S+) from ",
    re.M,
)
#: Lines of the log that help to understand the others.
_TELLING = re.compile("Connection|Accepted|Partial|Failed|Postponed|Received|Disconnected|error")
#: A conversation with a person begins; its further rounds are `keyboard-interactive/pam`.
_CONVERSATION = ("Postponed", "keyboard-interactive")
_LABS = {"lab", "netns_lab"}


@dataclass(frozen=True)
class Attempt:
    """One authentication as sshd wrote it down. how: Accepted, Partial (another factor has to
    follow), Failed, Postponed (a question was put)."""

    how: str
    method: str
    account: str

    @property
    def asked(self) -> bool:
        """Whether a person was to be asked, or a password was sent, whatever became of it."""
        return (self.how, self.method) == _CONVERSATION or (
            self.method == "password" and self.how != "Postponed"
        )

    def __str__(self) -> str:
        return f"{self.how} {self.method} for {self.account}"


def attempts(log: str) -> list[Attempt]:
    """All that a log of sshd's tells."""
    found = (Attempt(one["how"], one["method"], one["account"]) for one in _ATTEMPT.finditer(log))
    return [one for one in found if one.method != "none"]


@dataclass(frozen=True)
class Budget:
    """What one sshd may see. accepted, failed: at most; asked: exactly, once for each time that
    a person acted; None: not looked at, where a rig authenticates by itself all the time."""

    accepted: int | None = 1
    failed: int = 0
    asked: int = 0

    def overdrawn(self, seen: list[Attempt]) -> list[str]:
        """What is wrong, in words."""
        accepted = sum(one.how == "Accepted" for one in seen)
        failed = sum(one.how == "Failed" for one in seen)
        asked = sum(one.asked for one in seen)
        wrong = []
        if self.accepted is not None and accepted > self.accepted:
            wrong.append(f"{accepted} logins, of {self.accepted} at most")
        if failed > self.failed:
            wrong.append(f"{failed} refusals, of {self.failed} at most")
        if asked != self.asked:
            wrong.append(f"{asked} questions for {self.asked} actions of a person")
        return wrong


@dataclass
class Log:
    """What one sshd writes from now on. read: the whole of its log."""

    host: str
    read: Callable[[], str]
    _before: int = field(init=False)

    def __post_init__(self) -> None:
        self._before = len(self.read())

    def objections(self, budget: Budget) -> list[str]:
        """What was more than that, with the lines that say so."""
        said = self.read()[self._before :]
        seen = attempts(said)
        wrong = budget.overdrawn(seen)
        if not wrong:
            return []
        counted = [f"{number} x {one}" for one, number in Counter(seen).items()]
        lines = [one for one in said.splitlines() if _TELLING.match(one)]
        return [f"sshd on {self.host}: {', '.join(wrong)}", *counted, "its log:", *lines]


def check(logs: Iterable[tuple[Log, Budget]]) -> None:
    """Assert that none of them has seen more than that."""
    wrong = [line for log, budget in logs for line in log.objections(budget)]
    if wrong:
        raise AssertionError("\n".join(wrong))


def file_log(host: str, path: Path) -> Log:
    """The log of an sshd that writes it into a file, which need not be there yet."""
    return Log(host, lambda: path.read_text(errors="replace") if path.exists() else "")


def lab_logs(lab: LabInfo) -> list[Log]:
    """The logs of a lab's three sshds."""
    return [file_log(host, Layout(lab.dir).log(f"sshd-{host}")) for host in HOSTS]


def allowed(request: pytest.FixtureRequest, host: str) -> int:
    """How many logins the test has stated for a host."""
    marker = request.node.get_closest_marker("logins")
    if marker is None:
        return 1
    return int(marker.kwargs.get(host, marker.args[0] if marker.args else 1))


@pytest.fixture
def counted_logins(request: pytest.FixtureRequest) -> Iterator[None]:
    """Counts at the shared lab's sshds; a login host of a test's own counts for itself. It
    is the first of a test's fixtures and so the last to end: what `tk down` does counts too."""
    rigs = [request.getfixturevalue(name) for name in sorted(_LABS & {*request.fixturenames})]
    logs = [log for lab in rigs for log in lab_logs(lab)]
    yield
    check((log, Budget(allowed(request, log.host))) for log in logs)
