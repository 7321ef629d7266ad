"""The checks of `tk doctor` for Kubernetes: kubectl, the API server, rights, and the pod."""

from __future__ import annotations

import json
import shutil
import time

from tunnelkit.child_process import run_child
from tunnelkit.link.kube.link import FIRST_MINOR, KubeLink, ProxyLink
from tunnelkit.link.kube.printable import printable
from tunnelkit.model import Completed, JobState
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.kube.adapter import Kubernetes
from tunnelkit.scheduler.kube.members import Choice, parse_choice
from tunnelkit.scheduler.kube.object_kinds import POD, ObjectKind
from tunnelkit.session.agent.pod_agent import run_python
from tunnelkit.session.doctor import laptop_checks
from tunnelkit.session.doctor.check import Check, Finding, fail, ok, skip, warn
from tunnelkit.session.doctor.context import CheckContext
from tunnelkit.session.job.pod_templates import template_of
from tunnelkit.session.runtime.completion_cache import learn

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#: What tk asks for: verb, resource, and what it is for.
_NEEDED = (("get", "pods"), ("create", "pods/exec"))
_BY_WEBSOCKET = (("get", "pods/exec"),)
_LIST = ("list", "pods")
_OWN_PODS = (_LIST, ("create", "pods"), ("delete", "pods"))
_ONE_POD = '. If you have them on one pod alone, set pod = "NAME" under [allocation]'
_FACTS = """
import json, os, pwd, sys
def entry():
    try: return pwd.getpwuid(os.getuid()).pw_name
    except KeyError: return ""
home = os.environ.get("HOME", "")
try: import importlib.util as u; debugpy = bool(u.find_spec("debugpy"))
except Exception: debugpy = False
shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], "uid": os.getuid(), "user": entry(),
    "home": home, "home_ok": bool(home) and os.access(home, os.W_OK), "debugpy": debugpy,
    "shm_mb": shm.f_blocks * shm.f_frsize >> 20 if shm else 0}))
"""


async def _link(scene: CheckContext) -> KubeLink:
    link = await scene.own_link()
    assert isinstance(link, KubeLink)
    return link


async def config(scene: CheckContext) -> Finding:
    """Check that the settings can be read, and name a context and a namespace."""
    where = scene.settings.config_file
    named = f"{where.name} in {where.parent}" if where is not None else "no tunnelkit.toml"
    return ok(f"{named}, {scene.settings.require_cluster()}")


async def kubectl(scene: CheckContext) -> Finding:
    """Check that kubectl or oc is there, and which release it is."""
    program = scene.settings.cluster.kubectl
    if shutil.which(program) is None:
        return fail(f"{program} is not on the PATH")
    done = await run_child([program, "version", "--client", "-o", "json"], timeout_s=8.0)
    try:
        version = str(json.loads(done.stdout)["clientVersion"]["gitVersion"])
    except (ValueError, KeyError, TypeError):
        return warn(f"{program} does not tell its version: {printable(done.error_text, 100)}")
    return ok(f"{program} {printable(version, 40)}", version=printable(version, 40))


async def connection(scene: CheckContext) -> Finding:
    """Check that the API server answers, and knows the user."""
    begin = time.monotonic()
    link = await _link(scene)
    took_ms = 1000 * (time.monotonic() - begin)
    answer = await link.request("GET", "/version")
    try:
        version = str(json.loads(answer.body)["gitVersion"])
        minor = int("".join(filter(str.isdigit, version.split(".")[1]))[:4])
    except (ValueError, KeyError, TypeError, IndexError):
        return warn(f"{link.name} answers, and does not tell its version")
    text = f"{link.name}: {printable(version, 40)}, after {took_ms:.0f} ms"
    if isinstance(link, ProxyLink) and link.by_websocket and minor < FIRST_MINOR:
        return fail(
            f"{text}: exec by WebSocket needs 1.{FIRST_MINOR}",
            fix='set link = "auto" or "kubectl-exec" under [cluster]: kubectl speaks SPDY there',
        )
    if isinstance(link, ProxyLink) and not link.by_websocket:
        text += ", streams by kubectl exec"
    return ok(text, version=printable(version, 40))


async def _lacking(link: KubeLink, rights: tuple[tuple[str, str], ...], pod: str = "") -> list[str]:
    """Return those of the rights that the user lacks, as the API server says.

    pod: the one that they are for; a Role may give them on pods by their names."""
    found = []
    for verb, resource in rights:
        name, _, sub = resource.partition("/")
        name, _, group = name.partition(".")
        asked = {"namespace": link.target.namespace, "verb": verb, "resource": name}
        if group:
            asked["group"] = group
        if sub:
            asked["subresource"] = sub
        if pod:
            asked["name"] = pod
        body = json.dumps({"spec": {"resourceAttributes": asked}, **_REVIEW}).encode()
        answer = await link.request("POST", _REVIEWS, body)
        try:
            allowed = json.loads(answer.body)["status"]["allowed"]
        except (ValueError, KeyError, TypeError):
            allowed = False
        if allowed is not True:
            found.append(f"{verb} {resource}")
    return found


_REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}


def role(namespace: str, kind: ObjectKind = POD) -> dict[str, object]:
    """Return the Role that an administrator may give, for all that tk does.

    kind: of what tk makes."""
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "delete"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list"]},
    ]
    if kind is not POD:
        verbs = ["list", "create", "delete"]
        rules.append({"apiGroups": [kind.group], "resources": [kind.plural], "verbs": verbs})
    metadata = {"name": "tunnelkit", "namespace": namespace}
    group = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": group, "kind": "Role", "metadata": metadata, "rules": rules}


def _asks(namespace: str, what: str, verbs: str, resources: str) -> str:
    name = f"tunnelkit-{what}" if what else "tunnelkit"
    return (
        f"ask an administrator of {namespace} for: kubectl -n {namespace} create role {name} "
        f"--verb={verbs} --resource={resources}, and its rolebinding for you; "
        "`tk doctor --json` has the Role"
    )


async def rights(scene: CheckContext) -> Finding:
    """Check each right that tk uses."""
    link, chosen = await _link(scene), _chosen(scene)
    namespace, pod = link.target.namespace, "" if chosen is None else chosen.pod
    asked = _asks(namespace, "", "get,list,create,delete", "pods,pods/exec")
    needed = _NEEDED if pod or chosen is None else (_LIST, *_NEEDED)
    if lacks := await _lacking(link, needed, pod):
        asked += "" if pod else _ONE_POD
        return fail(f"you may not {', '.join(lacks)}", fix=asked, role=role(namespace))
    by_websocket = isinstance(link, ProxyLink) and link.by_websocket
    if by_websocket and (lacks := await _lacking(link, _BY_WEBSOCKET, pod)):
        return fail(
            f"you may not {lacks[0]}, which exec by WebSocket needs",
            fix='set link = "kubectl-exec" under [cluster], or ' + asked,
            role=role(namespace),
        )
    template = await template_of(scene.settings)
    if lacks := await _lacking(link, _OWN_PODS):
        what = f"you may not {', '.join(lacks)}"
        if chosen is None and template is not None:
            return fail(what, fix=asked, role=role(namespace))
        found = f"pods that are there can be used; {what}"
        return warn(found, fix=asked, role=role(namespace))
    kind = POD if template is None else template.kind
    if kind is not POD:
        objects = f"{kind.plural}.{kind.group}"
        own = tuple((verb, objects) for verb in ("list", "create", "delete"))
        if lacks := await _lacking(link, own):
            asked = _asks(namespace, f"{kind.choice}s", "list,create,delete", objects)
            return fail(f"you may not {', '.join(lacks)}", fix=asked, role=role(namespace, kind))
    await _learn_names(link, scene)
    more = "" if kind is POD else f"; list, create, delete {kind.plural}"
    return ok(f"get, list, create, delete pods; exec into them{more}")


def _chosen(scene: CheckContext) -> Choice | None:
    """Return the pods of the session, or of `[allocation] pod`. Raises UsageError."""
    named = scene.settings.allocation.pod
    if scene.status is not None and scene.status["job"] is not None:
        named = scene.status["job"]["id"]
    return None if named is None else parse_choice(named)


async def _learn_names(link: KubeLink, scene: CheckContext) -> None:
    """Store the names of pods for TAB."""

    async def run(command: Command) -> Completed:
        method, path = command.argv
        answer = await link.request(method, path)
        return Completed(0 if answer.status == 200 else answer.status, answer.body, b"")

    await learn(run, Kubernetes(link.target.namespace), link.name, scene.project_dir)


async def pod(scene: CheckContext) -> Finding:
    """Check the pod: exec's round trip, its Python, uid, HOME and /dev/shm."""
    settings, chosen = scene.settings, _chosen(scene)
    if chosen is None:
        return skip("no pod is named: set `pod` under [allocation], or run tk up first")
    link, named = await _link(scene), chosen.written
    scheduler = Kubernetes(link.target.namespace, container=link.target.container)
    method, path = scheduler.query([named]).argv
    answer = await link.request(method, path)
    done = Completed(0 if answer.status == 200 else answer.status, answer.body, answer.body)
    status = scheduler.parse_query(done, [named])[named]
    if status.state is not JobState.RUNNING:
        return fail(f"{named}: {status.explanation or status.native_state or 'it is not there'}")
    name, begin = status.nodes[0], time.monotonic()
    done = await run_python(link, settings.cluster, name, ["-c", _FACTS])
    took_ms = 1000 * (time.monotonic() - begin)
    try:
        facts = json.loads(done.stdout[:4096])
        uid, home = int(facts["uid"]), printable(str(facts["home"]), 80)
    except (ValueError, KeyError, TypeError):
        return fail(f"{name}: no Python 3.8 or newer: {printable(done.error_text, 200)}")
    text = f"{name}: exec {took_ms:.0f} ms, Python {printable(str(facts.get('python')), 8)}"
    text += f", uid {uid}" + ("" if facts.get("user") else " without a passwd entry")
    text += f", HOME {home or 'unset'}" + ("" if facts.get("home_ok") else ", not writable")
    text += f", /dev/shm {facts.get('shm_mb')} MB" if isinstance(facts.get("shm_mb"), int) else ""
    return ok(text + ("" if facts.get("debugpy") is True else ", no debugpy: tk sends its own"))


KUBE_CHECKS = (
    Check("config", config, "run `tk init --kube`"),
    Check("session", laptop_checks.session, "tk up"),
    Check("kubectl", kubectl, "install kubectl or oc, or set [cluster] kubectl", needs=("config",)),
    Check(
        "connection",
        connection,
        "does `kubectl version` work, with the same --context?",
        needs=("kubectl",),
        limit_s=25.0,
    ),
    Check("rights", rights, "ask an administrator", needs=("connection",)),
    Check(
        "pod",
        pod,
        "another image, or [cluster] python and container",
        needs=("session", "rights"),
        limit_s=30.0,
    ),
)
