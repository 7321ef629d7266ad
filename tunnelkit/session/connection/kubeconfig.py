"""The context of the user's kubeconfig, by kubectl itself: for `tk init --kube`."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass

from tunnelkit.child_process import run_child
from tunnelkit.errors import ConfigError, MissingProgram
from tunnelkit.link.kube.printable import printable
from tunnelkit.link.kube.target import KubeTarget

_ANSWER_S = 20.0


@dataclass(frozen=True)
class KubeContext:
    """A context and a namespace, and the program that is there: kubectl or oc."""

    context: str
    namespace: str
    kubectl: str


def read_context(context: str | None, namespace: str | None) -> KubeContext:
    """Return the context, by default the current one, and its namespace.

    Raises MissingProgram, ConfigError."""
    program = next((one for one in ("kubectl", "oc") if shutil.which(one)), None)
    if program is None:
        raise MissingProgram(
            "neither kubectl nor oc is installed",
            hint="install one of them, and log in; then tk init --kube",
        )
    named = [] if context is None else [f"--context={context}"]
    argv = [program, "config", "view", "--minify", "-o", "json", *named]
    done = asyncio.run(run_child(argv, timeout_s=_ANSWER_S))
    try:
        found = json.loads(done.stdout)["contexts"][0]
        name, there = str(found["name"]), found["context"].get("namespace")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ConfigError(
            "your kubeconfig names no such context" if context else "there is no current context",
            cause=printable(done.error_text) or None,
            hint="`kubectl config get-contexts` lists them; tk init --kube --context NAME",
        ) from None
    target = KubeTarget(name, namespace or str(there or "default"))  # checks both
    return KubeContext(target.context, target.namespace, program)
