"""`tk up -f` and `--queue`: objects that make pods, made by tk; on the stand-in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.support.kube_rig import KubeProject, kill_session, running_stand_in
from tests.support.tkrig import PROGRAM, eventually, line_of, made_project
from tunnelkit.lab.kube.stand_in import StandIn

STOP = line_of(PROGRAM, "total += step")
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: llama, labels: {team: nlp}}
spec:
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: standin:1
        command: [python]
        args: [2.py]
        livenessProbe: {exec: {command: ["false"]}}
"""
#: Suspended, as by Kueue's webhook.
QUEUED = JOB.replace("parallelism: 2", "parallelism: 1\n  suspend: true")
SERVICE = "---\napiVersion: v1\nkind: Service\nmetadata: {name: train}\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandIn]:
    with running_stand_in() as made:
        yield made


@pytest.fixture
async def project(cluster: StandIn) -> AsyncIterator[KubeProject]:
    async with made_project(lambda base: KubeProject(cluster, base)) as made:
        yield made


def there(cluster: StandIn, resource: str = "pods") -> list[Any]:
    api = "/api/v1" if resource == "pods" else "/apis/batch/v1"
    found: Any = cluster.ask("GET", f"{api}/namespaces/{cluster.namespace}/{resource}")
    items: list[Any] = found["items"]
    return items


async def all_gone(cluster: StandIn) -> None:
    assert there(cluster, "jobs") == []
    await eventually(lambda: there(cluster) == [], "the pods are deleted")


async def test_a_job_of_two_pods_from_its_manifest(cluster: StandIn, project: KubeProject) -> None:
    """F5 in it; a killed session's successor takes it over; `tk down` deletes it."""
    project.write("job.yaml", JOB)
    status = await project.up("-f", "job.yaml")
    (job,) = there(cluster, "jobs")
    name = job["metadata"]["name"]
    assert status["job"]["id"] == f"job/{name}" and status["job"]["made_by"] == "tk"
    assert job["metadata"]["labels"]["team"] == "nlp"
    assert "livenessProbe" not in str(job)
    pods = [one["metadata"]["name"] for one in there(cluster)]
    assert [status["node"], *(one["node"] for one in status["other_nodes"])] == pods
    assert len(pods) == 2
    other = await project.tk("run", "--node", pods[1], "sh", "-c", "echo $TK_DIR")
    assert f"/pods/{pods[1]}/" in other.out

    project.pod_dir = cluster.root / "pods" / pods[0]
    terminal = await project.loop("--rank", "0")
    assert "starting in 2 pods" in terminal.text
    await project.ready()
    editor, thread, frame = await project.f5_to_stop(STOP)
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)
    await terminal.line(r"run 1 · ended: exit code 0")

    kill_session(project)
    again = await project.up("-f", "job.yaml")
    assert again["job"]["id"] == f"job/{name}" and len(there(cluster)) == 2
    kill_session(project)
    (project.dir / "job.yaml").unlink()
    done = await project.tk("down")
    assert f"the session was killed; job/{name} cancelled" in done.out
    await all_gone(cluster)


async def test_its_own_command_names_variables_of_each_pod(
    cluster: StandIn, project: KubeProject
) -> None:
    said = 'command: [sh, -c, "echo $0 is $(JOB_COMPLETION_INDEX) \'$(NONE)\' $$0", "part"]'
    project.write("job.yaml", JOB.replace("command: [python]", said).replace("args: [2.py]", ""))
    await project.up("-f", "job.yaml")
    terminal = await project.terminal("loop")
    for index in (0, 1):
        await terminal.line(rf"part is {index} \$\(NONE\) part")
    await project.tk("down")
    await all_gone(cluster)


@pytest.mark.parametrize("words", [("-f", "job.yaml"), ("--image", "standin:1")])
async def test_it_waits_in_a_queue_until_there_is_room(
    cluster: StandIn, project: KubeProject, words: tuple[str, str]
) -> None:
    project.write("job.yaml", QUEUED)
    terminal = await project.terminal("up", *words, "--queue", "team-a")
    name = (await terminal.line(r"submitted job/(\S+)"))[1]
    await terminal.line("it waits in the queue team-a")
    (job,) = there(cluster, "jobs")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert job["spec"]["suspend"] is True and there(cluster) == []
    cluster.ask("POST", "/standin/resume", {"job": name})
    assert await terminal.ended() == 0
    await project.tk("down")
    await all_gone(cluster)


async def test_a_job_whose_time_is_over_is_replaced(cluster: StandIn, project: KubeProject) -> None:
    words = ("up", "--image", "standin:1", "--queue", "team-a", "--time", "1h")

    async def up() -> str:
        terminal = await project.terminal(*words)
        name = (await terminal.line(r"submitted job/(\S+)"))[1]
        cluster.ask("POST", "/standin/resume", {"job": name})
        assert await terminal.ended() == 0
        return name

    first = await up()
    (pod,) = [one["metadata"]["name"] for one in there(cluster)]
    kill_session(project)
    over = {"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": []}
    cluster.ask("POST", "/standin/fail", {"pod": pod, "status": over})
    second = await up()
    assert second != first
    assert [one["metadata"]["name"] for one in there(cluster, "jobs")] == [second]
    await project.tk("down")
    await all_gone(cluster)


async def test_a_namespace_where_no_pod_may_be_root(cluster: StandIn, project: KubeProject) -> None:
    cluster.ask("POST", "/standin/restrict", {"enforce": True})
    try:
        await project.up("--image", "standin:1")
        (pod,) = there(cluster)
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        await project.tk("down")
    finally:
        cluster.ask("POST", "/standin/restrict", {"enforce": False})
    await all_gone(cluster)


async def test_doctor_asks_for_the_rights_to_make_it(
    cluster: StandIn, project: KubeProject
) -> None:
    project.write("job.yaml", JOB)
    project.configure('[allocation]\nmanifest = "job.yaml"\n')
    await project.tk("trust", "--yes")
    cluster.ask("POST", "/standin/deny", {"rights": ["create jobs"]})
    try:
        done = await project.tk("doctor", "--json", code=13)
        refused = await project.tk("up", code=7)
    finally:
        cluster.ask("POST", "/standin/deny", {"rights": []})
    found = {one["name"]: one for one in done.json["checks"]}["rights"]
    assert found["status"] == "fail" and "you may not create jobs.batch" in found["found"]
    assert "create role tunnelkit-jobs" in found["fix"]
    assert ["batch"] in [rule["apiGroups"] for rule in found["data"]["role"]["rules"]]
    assert "did not take the job" in refused.err and "cannot create" in refused.err
    await all_gone(cluster)


async def test_the_manifest_of_a_clone_is_not_made_before_the_user_agrees(
    cluster: StandIn, project: KubeProject
) -> None:
    project.write("job.yaml", JOB)
    toml = project.dir / "tunnelkit.toml"
    toml.write_text(f'{toml.read_text()}[allocation]\nmanifest = "job.yaml"\n')
    done = await project.tk("up", code=3)
    assert "tk trust" in done.err and "manifest" in done.err, done
    await all_gone(cluster)


async def test_bad_input_makes_nothing(cluster: StandIn, project: KubeProject) -> None:
    project.write("job.yaml", JOB + SERVICE)
    project.write("bad.yaml", "kind: [\n")
    cases = [
        (("-f", "none.yaml"), "there is no file"),
        (("-f", "job.yaml"), "job.yaml must have one object that makes pods; it has Job, Service"),
        (("-f", "bad.yaml"), "bad.yaml can't be read as a manifest"),
        (("-f", "job.yaml", "--gpus", "1"), "the manifest says what to ask for"),
        (("-f", "job.yaml", "--image", "a:1"), "give one of them"),
        (("-f", "job.yaml", "a-pod"), "a manifest and a pod"),
    ]
    for words, said in cases:
        done = await project.tk("up", *words, code=2)
        assert said in done.err, done
    await all_gone(cluster)
