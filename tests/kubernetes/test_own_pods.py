"""Pods that tk makes under OpenShift's admission, and pods that can't start."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.kubernetes import Member
from tests.support.kubernetes.project import WORK, RigProject, pod
from tests.support.tkrig import PROGRAM, eventually, line_of

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

STOP = line_of(PROGRAM, "total += step")
IMAGE = "docker.io/tk/python:1"


def names(member: Member) -> list[str]:
    return member.admin("get", "pods,jobs", "-o", "name").split()


async def f5(project: RigProject) -> None:
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert await editor.evaluate("total + 1000", frame) == "1000"
    await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
    await editor.finish(thread)


async def test_a_pod_of_an_image(member: Member, project: RigProject) -> None:
    status = await project.up("--image", IMAGE, "--cpus", "1", "--mem", "256M", "--time", "1h")
    name = status["node"]
    spec: Any = json.loads(member.admin("get", "pod", name, "-o", "json"))
    assert spec["metadata"]["annotations"]["openshift.io/scc"] == "restricted-v2"
    assert spec["spec"]["activeDeadlineSeconds"] == 3600
    home = (
        await project.tk("run", "sh", "-c", "echo $HOME; touch $HOME/x /dev/shm/x && echo $USER")
    ).out
    assert home.splitlines()[0].startswith("/tk"), home
    terminal = await project.loop("python3", "2.py")
    await f5(project)
    await terminal.line(r"step 2 first")
    await project.tk("down")
    await eventually(lambda: f"pod/{name}" not in names(member), "the pod is deleted", 60)


async def test_a_job_of_the_users_own_manifest(member: Member, project: RigProject) -> None:
    container = {"name": "train", "image": IMAGE, "command": ["python3", f"{WORK}/2.py"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "fit"}}
    project.write("job.yaml", json.dumps({**job, "spec": {"template": template}}))
    await project.up("-f", "job.yaml")
    terminal = await project.loop()
    await f5(project)
    await terminal.line(r"step 2 first")
    made = [one for one in names(member) if one.startswith("job")]
    assert len(made) == 1
    await project.tk("down")
    await eventually(lambda: not names(member), "job and pod are deleted", 60)


async def test_what_can_never_start_is_said_and_deleted(
    member: Member, project: RigProject
) -> None:
    terminal = await project.terminal("up", "--image", IMAGE, "--gpus", "9")
    await terminal.line("Insufficient nvidia.com/gpu")
    said = (await project.tk("why", code=None)).out
    assert "Insufficient nvidia.com/gpu" in said, said
    await project.tk("down")
    await terminal.ended()
    terminal = await project.terminal("up", "--image", "127.0.0.1:1/tk/nothing:9")
    await terminal.line("127.0.0.1:1/tk/nothing:9")
    await project.tk("down")
    print(terminal.text)
    await eventually(lambda: not names(member), "nothing is left", 60)


async def test_an_image_without_python(member: Member, project: RigProject) -> None:
    member.make(pod("bare", "nopython"))
    member.wait_ready("bare")
    refused = await project.tk("up", "bare", code=8)
    assert "tk: no Python 3.8 or newer in pod bare — use an image that has one" in refused.err
    member.admin("delete", "pod", "bare", "--grace-period=0", "--force")


async def test_a_pod_with_a_read_only_root(member: Member, project: RigProject) -> None:
    strict = pod("strict")
    (main,) = strict["spec"]["containers"]
    main["securityContext"] = {"readOnlyRootFilesystem": True}
    main["volumeMounts"] = [{"name": "work", "mountPath": WORK}]
    strict["spec"]["volumes"] = [{"name": "work", "emptyDir": {}}]
    member.make(strict)
    member.wait_ready("strict")
    await project.up("strict")
    terminal = await project.loop("python3", "2.py")
    await f5(project)
    await terminal.line(r"step 2 first")
    await project.tk("down")


async def test_memory_that_is_gone_is_named(member: Member, project: RigProject) -> None:
    """The kernel kills a child of the agent. The API server never knows of it."""
    small = pod("small")
    (main,) = small["spec"]["containers"]
    main["resources"] = {"limits": {"memory": "200Mi"}, "requests": {"memory": "200Mi"}}
    member.make(small)
    member.wait_ready("small")
    await project.up("small")
    project.write("big.py", "data = bytearray(1 << 30)\nprint(len(data))\n")
    done = await project.tk("run", "python3", "big.py", code=137)
    assert "out of memory: the kernel killed a process of this job or pod" in done.err
    terminal = await project.loop("python3", "big.py")
    editor = await project.f5(file="big.py")
    await terminal.line(r"run 1 · ended: signal SIGKILL \(out of memory: the kernel killed a proc")
    await editor.wait_event("terminated")
    await project.tk("down")


async def test_the_doctor_finds_all_well(member: Member, project: RigProject) -> None:
    member.make(pod("asked"))
    member.wait_ready("asked")
    project.configure('[allocation]\npod = "asked"\n')
    done = await project.tk("doctor", "--json", code=None)
    found = {one["name"]: one for one in done.json["checks"]}
    assert {name: one for name, one in found.items() if one["status"] == "fail"} == {}
    assert "v1.36" in found["connection"]["found"]


async def test_who_may_only_look_is_told_the_role(member: Member, project: RigProject) -> None:
    member.make(pod("closed"))
    member.wait_ready("closed")
    member.admin("delete", "rolebinding", "dev-edit")
    member.admin("create", "rolebinding", "dev-view", "--clusterrole=view", "--user=dev")
    try:
        refused = await project.tk("up", "closed", code=5)
        assert "you don't have the right to" in refused.err and "tk doctor" in refused.err
        done = await project.tk("doctor", "--json", code=13)
        found = {one["name"]: one for one in done.json["checks"]}
        assert "pods/exec" in found["rights"]["found"]
    finally:
        member.admin("create", "rolebinding", "dev-edit", "--clusterrole=edit", "--user=dev")
