"""A pulled file is never taken for tk's own, also where sending it has begun since."""

from __future__ import annotations

from tunnelkit.mirror.agent.path_header import ExpectedState, expectation
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.scanner import FILE, Entry

BEGUN = ManifestEntry(Entry(FILE, 0o644, 5, 1, 1, 7), "the job's", sent=False, tried="older")


def test_a_send_without_an_answer_makes_no_pulled_file_tks() -> None:
    tried = {"out.txt": {"the job's", "older"}}
    rows = {"out.txt": BEGUN}
    own = expectation("out.txt", ExpectedState(rows, tried))
    assert own is not None and own["digests"] == ["older", "the job's"]
    assert expectation("out.txt", ExpectedState(rows, tried, pulled={"out.txt"})) is None
    sent = {"out.txt": BEGUN._replace(sent=True, stamp="1:2:3:4")}
    assert expectation("out.txt", ExpectedState(sent, {}, pulled={"out.txt"})) is None
