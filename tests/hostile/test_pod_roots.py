"""A pod that lies about its root: it gets no volume that it does not see, and no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hostile.far_node import EVIL
from tunnelkit.errors import TunnelkitError
from tunnelkit.model import Completed, MirrorSpec
from tunnelkit.remote_script import MARK
from tunnelkit.session.files.shared_roots import RootWriter, SharedRoots

_SPEC = MirrorSpec(".", "/work")


class Pod:
    """A pod with answers that are given before. asked: all that it was sent, named: the last
    words of the commands, given: their input."""

    def __init__(self, *items: str, code: int = 0, noise: bytes = b"") -> None:
        self.asked = b""
        self.named: list[str] = []
        self.given: list[bytes] = []
        self._answer = noise + MARK + b"".join(item.encode() + b"\0" for item in items)
        self._code = code

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        self.asked += " ".join(argv).encode() + stdin
        self.named.append(argv[-1])
        self.given.append(stdin)
        return Completed(self._code, self._answer, EVIL.encode())

    def remote_shell(self) -> list[str]:
        return []

    def destination(self) -> str:
        return "w-1"


async def shared(first: Pod, liar: Pod) -> dict[str, Any]:
    roots = SharedRoots()
    mirror: Any = SimpleNamespace(spec=_SPEC, remote_root="/work")
    roots.add(RootWriter("w-0", first, mirror))
    return dict(await roots.shared_by(liar, [_SPEC]))


@pytest.mark.parametrize(
    "items",
    [
        (),
        ("there",),
        ("there", "/work", "", ""),
        ("there", "/work", "a guess", ""),
        ("there", "/work", "x" * 1_000_000, "y" * 1_000_000),
        ("there", EVIL, EVIL, EVIL),
        ("there", "/work", *["guess"] * 100_000),
        ("absent", "/work", "", "turn 1"),
    ],
)
async def test_a_pod_can_not_claim_a_volume_that_it_does_not_see(items: tuple[str, ...]) -> None:
    first, liar = Pod("turn of the first pod"), Pod(*items)
    assert await shared(first, liar) == {}
    assert b"turn of the first pod" not in liar.asked


async def test_it_is_sent_no_secret() -> None:
    first, liar = Pod("turn"), Pod("there", "/work", "", "")
    await shared(first, liar)
    secret = first.given[0]
    assert len(secret) == 32 and secret not in liar.asked
    assert first.named[0] in liar.named, "it is asked for the mark by its name"


async def test_its_refusals_are_errors_in_one_line() -> None:
    for liar in (Pod(code=1), Pod(code=255), Pod(code=91, noise=b"x" * 100_000)):
        with pytest.raises(TunnelkitError) as raised:
            await shared(Pod("turn"), liar)
        assert "\n" not in raised.value.one_line()


async def test_one_that_says_it_has_the_first_pods_owner_is_only_refused_itself() -> None:
    with pytest.raises(TunnelkitError, match="another directory than in w-0"):
        await shared(Pod("turn"), Pod("there", "/work", "", "turn"))
