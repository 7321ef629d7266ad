"""When a session's launch record takes the place of an earlier one's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunnelkit.config.load import load
from tunnelkit.config.schema import Origin, OriginKind, Settings, build
from tunnelkit.errors import AllocationError, UsageError
from tunnelkit.model import JobState, JobStatus
from tunnelkit.session.allocation.launch_record import LaunchRecord
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import SessionPaths, session_paths


class Rig:
    """A project; `left` writes the record of an earlier session, `record` begins one."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.paths: SessionPaths = session_paths(directory)
        self.paths.make()
        self.said: list[str] = []

    def settings(
        self, *, kind: OriginKind = "flag", login: str = "me@a", gpus: int | None = None
    ) -> Settings:
        (self.dir / "tunnelkit.toml").write_text(f'[cluster]\nlogin = "{login}"\n')
        read = load(self.dir, environ={})
        values: dict[str, object] = {"cluster.login": read.cluster.login}
        origins: dict[str, Origin] = {}
        if gpus is not None:
            values["allocation.gpus"] = gpus
            origins["allocation.gpus"] = Origin(kind, "--gpus")
        return build(values, origins, project_dir=self.dir, config_file=None)

    def left(
        self, node: str | None = None, *, job: str | None = None, gpus: int | None = None
    ) -> None:
        LaunchSpec(self.settings(gpus=gpus), node, attach_job=job).save(self.paths.launch)

    def record(self, settings: Settings, node: str | None = None) -> LaunchRecord:
        launch = LaunchSpec(settings, node)
        launch.save(self.paths.launch_wanted)
        return LaunchRecord(launch, self.paths, self.said.append)

    def recorded(self) -> LaunchSpec:
        return LaunchSpec.load(self.paths.launch)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TK_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "project").mkdir()
    return Rig(tmp_path / "project")


def job(*nodes: str) -> JobStatus:
    state = JobState.RUNNING if nodes else JobState.PENDING
    return JobStatus("12", state, state.value, nodes=nodes)


@pytest.mark.parametrize("waits_for", ["node4", None])
def test_a_job_that_waits_is_not_taken_for_another_node(rig: Rig, waits_for: str | None) -> None:
    rig.left(waits_for)
    record = rig.record(rig.settings(), "node5")
    with pytest.raises(AllocationError, match=f"job 12.*{waits_for or 'any node'}") as caught:
        record.check(job(), "node5")
    assert "tk down first, then tk up node5" in caught.value.one_line()
    assert rig.recorded().node == waits_for


def test_a_job_that_waits_for_the_node_or_has_it_is_taken(rig: Rig) -> None:
    rig.left("node4")
    record = rig.record(rig.settings(), "node4")
    record.check(job(), "node4")
    record.check(job("node3", "node4"), "node4")
    record.check(job("node3"), None)
    assert rig.said == []


def test_other_resources_are_refused_from_a_flag_and_told_from_a_file(rig: Rig) -> None:
    rig.left(gpus=1)
    with pytest.raises(UsageError, match="gpus is 1, not 4") as caught:
        rig.record(rig.settings(gpus=4)).check(job("node4"), None)
    assert "tk down first" in caught.value.one_line()
    rig.record(rig.settings(kind="project", gpus=4)).check(job("node4"), None)
    (notice,) = rig.said
    assert "gpus = 4; this session has 1" in notice


def test_a_job_that_was_taken_over_stays_recorded_as_it_was_made(rig: Rig) -> None:
    """A later `tk up --gpus 1` was refused: "gpus is 4, not 1"."""
    rig.left("node4", gpus=1)
    record = rig.record(rig.settings(kind="project", gpus=4), "node4")
    record.settle("node4", taken_over=True)
    assert rig.recorded().settings.allocation.gpus == 1
    assert not rig.paths.launch_wanted.exists()
    # It was ending: a new one is submitted instead.
    record.check(job("node4"), None)
    record.settle("node4")
    assert rig.recorded().settings.allocation.gpus == 4


def test_a_job_that_was_taken_over_stays_recorded_with_its_node(rig: Rig) -> None:
    rig.left("node4")
    record = rig.record(rig.settings())
    record.check(job(), None)
    record.settle(None, taken_over=True)
    assert (record.node, rig.recorded().node) == ("node4", "node4")
    record.settle(None)
    assert (record.node, rig.recorded().node) == (None, None)


def test_a_record_of_another_cluster_says_nothing_about_a_job_here(rig: Rig) -> None:
    rig.left("node4", gpus=1)
    record = rig.record(rig.settings(login="me@b", gpus=4), "node5")
    assert record.left is None
    record.check(job(), "node5")


def test_the_record_of_a_users_job_that_is_over_is_forgotten_alone(rig: Rig) -> None:
    rig.left("node4", job="4711")
    for wanted, is_kept in (("4712", True), ("4711", False)):
        launch = LaunchSpec(rig.settings(), None, attach_job=wanted)
        LaunchRecord(launch, rig.paths, rig.said.append).forget_attached()
        assert rig.paths.launch.exists() is is_kept
