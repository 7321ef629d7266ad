"""The stand-in API server: its resources, who may do what, and the doors for a test.

A test reaches the latter at `/standin/...`, with the same token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import urllib.parse
from collections.abc import Awaitable, Callable
from pathlib import Path

from tunnelkit.lab.kube.exec_server import serve_exec
from tunnelkit.lab.kube.owners import KINDS, Owner, owned_by
from tunnelkit.lab.kube.pod_security import violations
from tunnelkit.lab.kube.pods import Pod, now
from tunnelkit.lab.kube.wire import Json, Request, answer, failure, read_request, wants_upgrade

NAMESPACE = "default"
_VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0-standin", "platform": "linux/amd64"}
_VERBS = {"GET": "get", "POST": "create", "DELETE": "delete"}
_RESOURCES = [
    {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["create", "delete", "get", "list", "watch"],
        "shortNames": ["po"],
    },
    {
        "name": "pods/exec",
        "singularName": "",
        "namespaced": True,
        "kind": "PodExecOptions",
        "verbs": ["create", "get"],
    },
    {
        "name": "events",
        "singularName": "event",
        "namespaced": True,
        "kind": "Event",
        "verbs": ["get", "list"],
    },
]


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


_REFUSALS = {
    401: Refused(401, "Unauthorized", "Unauthorized"),
    500: Refused(500, "InternalError", "getting credentials: exec: executable aws failed"),
}


class ApiServer:
    """All state of the cluster. `serve` takes one connection."""

    def __init__(self, root: Path, token: str) -> None:
        self._root = root
        self._token = token
        self._pods: dict[str, Pod] = {}
        self._owners: dict[tuple[str, str], Owner] = {}
        self._events: list[object] = []
        #: "verb resource" that the user may not.
        self._denied: set[str] = set()
        #: Pods where he may all the same, as by `resourceNames` of a Role.
        self._open_pods: set[str] = set()
        self._knows_user = True
        self._refusal = 401
        #: True if the namespace enforces the restricted pod security standard.
        self._is_restricted = False
        #: Status of new pods, which then don't run; None: they run at once.
        self._held_status: Json | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._asking: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests until the connection ends."""
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def close(self) -> None:
        """End all pods."""
        await asyncio.gather(*(pod.end(1.0) for pod in self._pods.values()))

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await read_request(reader)
        self._asking = writer
        try:
            self._check_token(request)
            if request.parts[-1] == "exec" and len(request.parts) == 7:
                pod = self._exec_target(request)
                await serve_exec(reader, writer, request, pod)
                return False
            code, found = await self._answer(request)
        except Refused as error:
            code, found = error.code, failure(error.code, error.reason, str(error))
        await answer(writer, code, found)
        return True

    def _check_token(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        known = hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode())
        is_door = request.parts[0] == "standin"
        if not known or not (self._knows_user or is_door):
            raise _REFUSALS[self._refusal]

    def _may(self, verb: str, resource: str, name: str) -> bool:
        return f"{verb} {resource}" not in self._denied or name in self._open_pods

    def _check_right(self, verb: str, resource: str, pod: str = "") -> None:
        if not self._may(verb, resource, pod):
            name = f'"{resource}" in API group "" in the namespace "{NAMESPACE}"'
            said = f'pods is forbidden: User "me" cannot {verb} resource {name}'
            raise Refused(403, "Forbidden", said)

    def _exec_target(self, request: Request) -> Pod:
        named = request.parts[5]
        self._check_right("get", "pods/exec", named) if request.method == "GET" else None
        self._check_right("create", "pods/exec", named)
        pod = self._pod(named)
        if pod.status.get("phase") != "Running":
            phase = pod.status.get("phase")
            said = f"cannot exec into a container in a completed pod; current phase is {phase}"
            raise Refused(500, "InternalError", said)
        names = pod.container_names
        if len(names) > 1 and request.first("container") not in names:
            # kubectl names the default one by itself; the API server does not.
            said = f"a container name must be specified for pod {pod.name}, choose one of: {names}"
            raise Refused(400, "BadRequest", said)
        if not wants_upgrade(request):
            raise Refused(400, "BadRequest", "Upgrade request required")
        return pod

    def _pod(self, name: str) -> Pod:
        if name not in self._pods:
            raise Refused(404, "NotFound", f'pods "{name}" not found')
        return self._pods[name]

    async def _answer(self, request: Request) -> tuple[int, object]:
        fixed: dict[str, object] = {
            "/version": _VERSION,
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {
                "kind": "APIResourceList",
                "groupVersion": "v1",
                "resources": _RESOURCES,
            },
        }
        if request.path in fixed:
            return 200, fixed[request.path]
        if request.parts[0] == "standin":
            return 200, await self._door(request)
        if request.path.endswith("/selfsubjectaccessreviews"):
            return 201, self._review(request)
        if request.path.endswith("/selfsubjectreviews"):
            return 201, {"status": {"userInfo": {"username": "me", "groups": []}}}
        if request.parts[:3] == ["api", "v1", "namespaces"] and len(request.parts) >= 5:
            return await self._namespaced(request)
        if request.parts[0] == "apis" and request.parts[5:] and request.parts[5] in KINDS:
            return await self._owned(request, request.parts[5])
        raise Refused(404, "NotFound", f"no {request.path}")

    async def _owned(self, request: Request, resource: str) -> tuple[int, object]:
        """Answer about objects that make pods."""
        name = request.parts[6] if len(request.parts) > 6 else None
        verb = "list" if request.method == "GET" and name is None else _VERBS[request.method]
        self._check_right(verb, resource)
        if verb == "create":
            owner = Owner(resource, request.json())
            self._owners[resource, owner.name] = owner
            await self._start_pods(owner)
            return 201, owner.json
        if name is None:
            wanted = _wanted(request.first("labelSelector"))
            there = [one for one in self._owners.values() if one.resource == resource]
            there = [one for one in there if wanted.items() <= one.labels.items()]
            for one in there:
                one.look([pod.json for pod in self._pods.values()])
            return 200, _list("List", [one.json for one in there])
        if (resource, name) not in self._owners:
            raise Refused(404, "NotFound", f'{resource} "{name}" not found')
        owner = self._owners[resource, name]
        if verb == "delete":
            del self._owners[resource, name]
            if request.first("propagationPolicy") == "Background":
                for pod in [one for one in self._pods.values() if owned_by(one.json, owner)]:
                    self._later(self._delete(pod, 20.0))
        return 200, owner.json

    async def _start_pods(self, owner: Owner) -> None:
        for made in owner.pods():
            # The owner itself is taken; its controller makes no pod then.
            if not (self._is_restricted and violations(made)):
                await self._add(Pod(self._root, NAMESPACE, made))

    async def _namespaced(self, request: Request) -> tuple[int, object]:
        kind, name = request.parts[4], request.parts[5] if len(request.parts) > 5 else None
        verb = (
            "list" if request.method == "GET" and name is None else _VERBS.get(request.method, "")
        )
        self._check_right(verb, kind, name or "")
        if kind == "events":
            return 200, _list("EventList", self._events_for(request))
        if kind != "pods":
            return 200, _list("List", [])
        if name is None and verb == "create":
            return 201, await self._create(request)
        if name is None:
            return 200, self._page(request)
        pod = self._pod(name)
        if verb == "delete":
            grace_s = float(request.first("gracePeriodSeconds") or 30)
            metadata = pod.json["metadata"]
            assert isinstance(metadata, dict)
            metadata["deletionTimestamp"] = now()
            self._later(self._delete(pod, grace_s))
        return 200, pod.json

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: done.exception())

    async def _delete(self, pod: Pod, grace_s: float) -> None:
        await pod.end(grace_s)
        if self._pods.get(pod.name) is pod:
            del self._pods[pod.name]

    async def _create(self, request: Request) -> Json:
        try:
            pod = Pod(self._root, NAMESPACE, request.json())
        except ValueError as error:
            raise Refused(400, "BadRequest", str(error)) from error
        if self._is_restricted and (why := violations(pod.json)):
            raise Refused(403, "Forbidden", f'pods "{pod.name}" is forbidden: {why}')
        if pod.name in self._pods:
            raise Refused(409, "AlreadyExists", f'pods "{pod.name}" already exists')
        return await self._add(pod)

    async def _add(self, pod: Pod) -> Json:
        self._pods[pod.name] = pod
        if self._held_status is None:
            await pod.run()
        else:
            pod.status.update(self._held_status)
        return pod.json

    def _page(self, request: Request) -> Json:
        """Return the pods in the order of their names: the first `limit`, or those after them."""
        limit, after = int(request.first("limit") or 0), request.first("continue")
        pods = [one for one in self._listed(request.first("labelSelector")) if one.name > after]
        page = _list("PodList", [one.json for one in (pods[:limit] if limit else pods)])
        if limit and pods[limit:]:
            page["metadata"] = {"resourceVersion": "1", "continue": pods[limit - 1].name}
        return page

    def _listed(self, selector: str) -> list[Pod]:
        wanted = _wanted(selector)
        found: list[Pod] = []
        for name in sorted(self._pods):
            metadata = self._pods[name].json["metadata"]
            labels = metadata.get("labels", {}) if isinstance(metadata, dict) else {}
            if wanted.items() <= (labels or {}).items():
                found.append(self._pods[name])
        return found

    def _events_for(self, request: Request) -> list[object]:
        selector = urllib.parse.unquote(request.first("fieldSelector"))
        _, _, uid = selector.partition("involvedObject.uid=")
        return [one for one in self._events if not uid or uid in json.dumps(one)]

    def _review(self, request: Request) -> Json:
        asked = request.json()
        spec = asked.get("spec")
        wanted = spec.get("resourceAttributes") if isinstance(spec, dict) else None
        what = wanted if isinstance(wanted, dict) else {}
        sub = f"/{what['subresource']}" if what.get("subresource") else ""
        may = self._may(
            f"{what.get('verb')}", f"{what.get('resource')}{sub}", f"{what.get('name')}"
        )
        return {**asked, "status": {"allowed": may}}

    async def _door(self, request: Request) -> object:
        """Change the cluster, for a test: `/standin/WHAT` with a JSON object."""
        doors: dict[str, Callable[[Json], Awaitable[object]]] = {
            "deny": self._deny,
            "login": self._login,
            "restrict": self._restrict,
            "hold": self._hold,
            "status": self._set_status,
            "restart": self._restart,
            "resume": self._resume,
            "fail": self._fail,
            "event": self._add_event,
            "cut": self._cut,
            "processes": self._processes,
        }
        return await doors[request.parts[1]](request.json())

    async def _deny(self, given: Json) -> object:
        """rights: what the user may not. but_for: names of pods where he may."""
        rights, but_for = given.get("rights"), given.get("but_for")
        self._denied = {str(one) for one in rights} if isinstance(rights, list) else set()
        self._open_pods = {str(one) for one in but_for} if isinstance(but_for, list) else set()
        return {}

    async def _login(self, given: Json) -> object:
        """known: whether the token counts. token: the one that counts from now on. code: 401, or
        500 for what kubectl itself answers where its login plugin fails."""
        self._refusal = 500 if given.get("code") == 500 else 401
        self._knows_user = bool(given.get("known"))
        self._token = str(given.get("token") or self._token)
        return {}

    async def _restrict(self, given: Json) -> object:
        self._is_restricted = bool(given.get("enforce"))
        return {}

    async def _hold(self, given: Json) -> object:
        status = given.get("status")
        self._held_status = status if isinstance(status, dict) else None
        return {}

    async def _set_status(self, given: Json) -> object:
        pod, status = self._pod(str(given.get("pod"))), given.get("status")
        if isinstance(status, dict):
            pod.status.update(status)
        if given.get("run"):
            await pod.run()
        return pod.json

    async def _restart(self, given: Json) -> object:
        pod, terminated = self._pod(str(given.get("pod"))), given.get("terminated")
        await pod.restart(terminated if isinstance(terminated, dict) else {})
        return pod.json

    async def _resume(self, given: Json) -> object:
        """Let a suspended Job make its pods, as Kueue does once there is room."""
        owner = self._owners["jobs", str(given.get("job"))]
        owner.spec["suspend"] = False
        await self._start_pods(owner)
        return owner.json

    async def _fail(self, given: Json) -> object:
        """End a pod by force. gone: it is no longer there, as after a deletion."""
        pod, status = self._pod(str(given.get("pod"))), given.get("status")
        await pod.fail(status if isinstance(status, dict) else {})
        if given.get("gone"):
            del self._pods[pod.name]
        return pod.json

    async def _add_event(self, given: Json) -> object:
        self._events.append(given)
        return {}

    async def _cut(self, given: Json) -> object:
        """Break every connection but this one's, as a new rollout of the API server does."""
        for writer in self._writers - {self._asking}:
            with contextlib.suppress(OSError):
                writer.transport.abort()
        return {}

    async def _processes(self, given: Json) -> object:
        return self._pod(str(given.get("pod"))).processes()


def _wanted(selector: str) -> dict[str, str]:
    return dict(one.split("=", 1) for one in selector.split(",") if "=" in one)


def _list(kind: str, items: list[object]) -> Json:
    return {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
