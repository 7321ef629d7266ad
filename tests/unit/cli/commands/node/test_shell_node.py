"""`tk shell NODE` and `tk shell --node NODE`: the same node, named in `tk run`'s way or shorter."""

from __future__ import annotations

import pytest

from tunnelkit.cli import fast_path
from tunnelkit.cli.commands.node import run
from tunnelkit.cli.terminal import tty
from tunnelkit.errors import UsageError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The nodes on which a shell was asked for."""
    nodes: list[str | None] = []

    def note(argv: list[str], *, pty: bool, node: str | None) -> int:
        assert argv == [] and pty
        nodes.append(node)
        return 0

    monkeypatch.setattr(run, "_run", note)
    monkeypatch.setattr(tty, "is_interactive", lambda: True)
    return nodes


def test_the_node_of_a_shell_is_named_in_either_way(asked: list[str | None]) -> None:
    for words in ([], ["node2"], ["--node", "node2"], ["node2", "--node", "node2"]):
        with pytest.raises(SystemExit):
            fast_path.run(["shell", *words])
    assert asked == [None, "node2", "node2", "node2"]


def test_two_nodes_are_refused(asked: list[str | None]) -> None:
    with pytest.raises(UsageError, match="two nodes") as refused:
        fast_path.run(["shell", "node2", "--node", "node3"])
    assert refused.value.hint and asked == []
