"""The record of what was pulled: the job's own, until the mirror writes it."""

from __future__ import annotations

from pathlib import Path

from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.tree.scanner import FILE, Entry

_ROW = ManifestEntry(Entry(FILE, 0o644, 5, 1, 1, 7), "digest", sent=True)


def test_what_was_pulled_is_known_after_a_restart(tmp_path: Path) -> None:
    first = Manifest(tmp_path / "m.sqlite")
    first.open()
    first.put({"sent": _ROW})
    first.mark_pulled(["sent", "odd\udcff", "log", "mine"])
    first.pulled.note({"log": (5, 7), "sent": (5, 7)}, new_since_ns=8)
    first.pulled.discard(["mine", "other"])
    first.put({"log": _ROW})
    assert first.unproven() == {"sent": "digest"}
    first.close()
    again = Manifest(tmp_path / "m.sqlite")
    again.open()
    again.mark_pulled(["log"])
    assert set(again.pulled) == {"odd\udcff", "log"}
    assert again.pulled.placed(["odd\udcff", "log", "sent"]) == {"log": (5, 7)}
    assert again.unproven() == {"sent": "digest"}
    again.close()


def test_what_was_pulled_when_it_was_new_is_looked_at_again(tmp_path: Path) -> None:
    first = Manifest(tmp_path / "m.sqlite")
    first.open()
    first.mark_pulled(["old", "new", "newer", "mine", "settled"])
    first.pulled.note(
        {"old": (5, 99), "new": (5, 100), "newer": (5, 101), "mine": (5, 101), "settled": (5, 101)},
        new_since_ns=100,
    )
    first.pulled.discard(["mine"])
    first.pulled.settle(["settled", "old"])
    first.close()
    again = Manifest(tmp_path / "m.sqlite")
    again.open()
    names = ["old", "new", "newer", "mine", "settled"]
    assert again.pulled.unsettled(names) == {"new": (5, 100), "newer": (5, 101)}
    again.pulled.note({"new": (5, 100)}, new_since_ns=200)
    assert again.pulled.unsettled(names) == {"newer": (5, 101)}
    assert again.pulled.placed(names) == dict.fromkeys(("newer", "settled"), (5, 101)) | {
        "old": (5, 99),
        "new": (5, 100),
    }
    again.close()
