"""The stand-in's admission by the restricted pod security standard, in its own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tunnelkit.lab.kube.wire import Json

_SECCOMP = "RuntimeDefault"


def violations(pod: Json) -> str:
    """Return what the restricted standard has against the pod; "" for nothing."""
    found = list(_violations(pod))
    return f'violates PodSecurity "restricted:latest": {", ".join(found)}' if found else ""


def _violations(pod: Json) -> Iterator[str]:
    of_pod, own = _at(pod, "spec", "securityContext"), _contexts(pod)
    wanted = "must set securityContext"
    if bad := [name for name, one in own if one.get("allowPrivilegeEscalation") is not False]:
        said = f"{_named(bad)} {wanted}.allowPrivilegeEscalation=false"
        yield f"allowPrivilegeEscalation != false ({said})"
    if bad := [name for name, one in own if "ALL" not in str(one.get("capabilities"))]:
        yield f'unrestricted capabilities ({_named(bad)} {wanted}.capabilities.drop=["ALL"])'
    whole = [(name, {**of_pod, **one}) for name, one in own]
    if bad := [name for name, one in whole if one.get("runAsNonRoot") is not True]:
        yield f"runAsNonRoot != true (pod or {_named(bad)} {wanted}.runAsNonRoot=true)"
    if bad := [name for name, one in whole if _at(one, "seccompProfile").get("type") != _SECCOMP]:
        said = f'{_named(bad)} {wanted}.seccompProfile.type to "{_SECCOMP}" or "Localhost"'
        yield f"seccompProfile (pod or {said})"


def _contexts(pod: Json) -> list[tuple[str, Mapping[str, object]]]:
    """Return the containers' names, each with its security context."""
    listed = _at(pod, "spec").get("containers")
    found = listed if isinstance(listed, list) else []
    return [(str(_at(one).get("name")), _at(one, "securityContext")) for one in found]


def _named(containers: list[str]) -> str:
    names = ", ".join(f'"{one}"' for one in containers)
    return f"container{'s' if len(containers) > 1 else ''} {names}"


def _at(found: object, *keys: str) -> Mapping[str, object]:
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
