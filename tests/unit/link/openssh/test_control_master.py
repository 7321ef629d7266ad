"""A master whose login breaks off: tried again only where its user has done nothing for it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tunnelkit.errors import AuthenticationFailed, ConnectionFailed, TunnelkitError
from tunnelkit.link.openssh.argv import SshCommand
from tunnelkit.link.openssh.askpass import Asker
from tunnelkit.link.openssh.control_master import ControlMaster
from tunnelkit.link.openssh.patient_logins import PatientLogins
from tunnelkit.link.options import LinkOptions
from tunnelkit.model import Hop

SILENT = "Connection to 10.0.0.1 port 22 timed out"
NO_BANNER = f"Connection timed out during banner exchange\n{SILENT}"
DEAD = "ssh: connect to host login port 22: Connection timed out"
CLOSED = "Connection closed by 10.0.0.1 port 22"
REFUSED = "me@login: Permission denied (publickey)."


class Rig:
    """A master whose ssh is a script; `patient` has how each start of it was asked for.

    quick: the host has let its user in at once before.
    """

    def __init__(self, directory: Path, *, limit_s: float = 60.0, quick: bool = True) -> None:
        if quick:
            (directory / "quick-logins").write_text("login\n")
        self.patient: list[bool] = []
        self.script = "exit 255"
        self.attended = True
        self.answered_at: float | None = None
        options = LinkOptions(Hop("login"))
        self.master = ControlMaster(
            "login",
            directory / "m",
            SshCommand(options, batch=False),
            self._prepare,
            silence_limit_s=limit_s,
            auth_timeout_s=limit_s,
            patient_logins=PatientLogins(directory / "patient-logins"),
        )

    async def _prepare(self, *, patient: bool) -> tuple[list[str], Asker | None]:
        self.patient.append(patient)
        asker = Asker("login", dict(os.environ), attended=self.attended)
        asker.answered_at = self.answered_at
        return ["sh", "-c", self.script], asker

    async def fails(self, said: str) -> TunnelkitError:
        self.script = f"printf '%s\\n' {shlex.quote(said)} >&2; exit 255"
        with pytest.raises(ConnectionFailed) as caught:
            await self.master.open()
        return caught.value


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_a_silent_login_is_not_tried_again_and_waits_longer_the_next_time(rig: Rig) -> None:
    """Each attempt sends a push to the user's phone, and ssh asks nothing."""
    error = await rig.fails(SILENT)
    assert isinstance(error, AuthenticationFailed) and not error.transient
    assert "timed out" in (error.cause or "") and "tk auth" in (error.hint or "")
    await rig.fails(SILENT)
    assert rig.patient == [False, True]


@pytest.mark.parametrize("said", [DEAD, NO_BANNER, CLOSED])
async def test_a_host_that_is_not_reached_is_tried_again(rig: Rig, said: str) -> None:
    error = await rig.fails(said)
    assert error.transient and not isinstance(error, AuthenticationFailed)
    await rig.fails(said)
    assert rig.patient == [False, False]


async def test_a_break_after_an_answer_is_not_tried_again(rig: Rig) -> None:
    rig.answered_at = 1.0
    assert isinstance(await rig.fails(CLOSED), AuthenticationFailed)
    refused = await rig.fails(REFUSED)
    assert "did not let us in" in refused.message, "what it says itself is kept"


async def test_a_reconnect_in_the_background_is_tried_again(rig: Rig) -> None:
    rig.attended = False
    error = await rig.fails(SILENT)
    assert error.transient and not isinstance(error, AuthenticationFailed)


@pytest.mark.parametrize("attended", [True, False])
async def test_an_ssh_that_never_says_a_word_is_ended(tmp_path: Path, attended: bool) -> None:
    rig = Rig(tmp_path, limit_s=0.0)
    rig.attended, rig.script = attended, "exec sleep 60"
    with pytest.raises(ConnectionFailed, match="login") as caught:
        await rig.master.open()
    assert isinstance(caught.value, AuthenticationFailed) is attended
    assert caught.value.transient is not attended


async def test_a_host_that_made_its_user_act_is_remembered(rig: Rig, tmp_path: Path) -> None:
    """The next `tk up` waits long enough from its first attempt on."""
    rig.answered_at = 1.0
    await rig.fails(CLOSED)
    later = Rig(tmp_path)
    await later.fails(CLOSED)
    assert (rig.patient, later.patient) == ([False], [True])
    assert (tmp_path / "patient-logins").read_text() == "login\n"
    (tmp_path / "patient-logins").unlink()
    (tmp_path / "patient-logins").mkdir()  # an unusable file is no error
    await Rig(tmp_path).fails(CLOSED)


async def test_the_first_login_at_a_host_may_wait_for_its_user(tmp_path: Path) -> None:
    """Nobody knows yet whether it sends a push."""
    rig = Rig(tmp_path, quick=False)
    await rig.fails(DEAD)
    await rig.fails(SILENT)
    assert rig.patient == [True, True]


def test_a_host_that_lets_its_user_in_at_once_is_remembered(tmp_path: Path) -> None:
    file = tmp_path / "patient-logins"
    logins = PatientLogins(file)
    assert logins.may_contain("login") and "login" not in logins
    logins.add_quick("login")
    logins.add_quick("login")
    assert not PatientLogins(file).may_contain("login")
    assert (tmp_path / "quick-logins").read_text() == "login\n"
    logins.add("login")
    assert PatientLogins(file).may_contain("login"), "it sends a push now"
    logins.add_quick("login")
    assert "login" in PatientLogins(file), "a push that came fast is one"
    assert not PatientLogins(None).may_contain("login"), "without a file there is no first login"
