"""Slurm is asked about this job alone."""

from __future__ import annotations

import pytest

from tunnelkit.keeper.slurm_job import JobRecord, SlurmJob


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({b"SLURM_JOB_ID": b"100"}, "100"),
        # The last element has the array's number, by which Slurm takes all elements.
        (
            {
                b"SLURM_JOB_ID": b"100",
                b"SLURM_ARRAY_JOB_ID": b"100",
                b"SLURM_ARRAY_TASK_ID": b"3",
            },
            "100_3",
        ),
    ],
)
def test_an_element_of_an_array_is_named_as_one(
    monkeypatch: pytest.MonkeyPatch, environ: dict[bytes, bytes], named: str
) -> None:
    job, asked = SlurmJob(environ, ""), []

    def run(argv: list[str]) -> str:
        asked.append(argv)
        return "1700000000 (null)\n"

    monkeypatch.setattr(job, "_run", run)
    assert job.record() is not None and job.set_comment("tk: kept")
    assert asked[0][asked[0].index("-j") + 1] == named
    assert f"jobid={named}" in asked[1]


def test_a_heterogeneous_jobs_comment_is_that_of_its_first_component(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = SlurmJob({b"SLURM_JOB_ID": b"100"}, "")
    monkeypatch.setattr(job, "_run", lambda argv: "1700000000 my note\n1700000000 other\n")
    assert job.record() == JobRecord(1700000000.0, "my note")
    monkeypatch.setattr(job, "_run", lambda argv: "N/A two\nlines\nN/A two\nlines\n")
    assert job.record() == JobRecord(None, "two\nlines")
    monkeypatch.setattr(job, "_run", lambda argv: "1700000000 (null)\n1700000000 (null)\n")
    assert job.record() == JobRecord(1700000000.0, "")
