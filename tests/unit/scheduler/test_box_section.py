"""The boxes of one job, read by a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.scheduler.box_section import SCRIPT, job_file_name, with_boxes
from tunnelkit.scheduler.sections import PREAMBLE, parse_sections

HEAD = '{"kind":"head","format":1,"job":"4711","node":"%s"}\n'


def read(home: Path, directory: str, job: str) -> EndView:
    script = PREAMBLE + "box_dir=$1 box_job=$2\n" + SCRIPT
    done = subprocess.run(
        ["sh", "-c", script, "sh", "mark", directory, job],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "SCRATCH": str(home / "a b")},
        capture_output=True,
        text=True,
        check=True,
    )
    return with_boxes(EndView(), parse_sections(done.stdout, "mark"))


@pytest.mark.parametrize(
    ("word", "place"),
    [("~/.cache/tk", ".cache/tk"), ("$SCRATCH/tk", "a b/tk"), ("/{home}/x", "x")],
)
def test_the_boxes_of_a_job_are_read(tmp_path: Path, word: str, place: str) -> None:
    boxes = tmp_path / place / "boxes"
    boxes.mkdir(parents=True)
    (boxes / "4711.0.jsonl").write_text(HEAD % "n1")
    (boxes / "4711.0.n2.jsonl").write_text(HEAD % "n2")
    (boxes / "47110.0.jsonl").write_text(HEAD % "n3")
    word = word.replace("/{home}", str(tmp_path))
    end = read(tmp_path, word, "4711")
    assert {one.node for one in end.boxes} == {"n1", "n2"}
    assert end.missing == ()


def test_no_box_is_no_fault(tmp_path: Path) -> None:
    assert read(tmp_path, "~/none", "4711") == EndView()
    assert read(tmp_path, "", "4711") == EndView()


def test_a_directory_that_is_not_known_there_is_told(tmp_path: Path) -> None:
    (text,) = read(tmp_path, "$NOWHERE/x", "4711").missing
    assert text.startswith("black box: $NOWHERE is not set")


@pytest.mark.parametrize(
    ("job", "name"),
    [("4711", "4711"), ("4711_3", "4711_3"), ("12.server", "12"), ("12[3].server.x", "12_3")],
)
def test_the_name_in_files(job: str, name: str) -> None:
    assert job_file_name(job) == name
