"""`tk sync --explain PATH`: why a path is mirrored or isn't."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tunnelkit.cli.terminal.context import find_session, project_dir, settings
from tunnelkit.cli.terminal.output import say
from tunnelkit.cli.views.status import printable
from tunnelkit.errors import MirrorError, NoSessionError
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import SyncExplain

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import ExplainAnswer

_STATES = {"in_sync": "in sync", "pending": "pending", "differs": "differs"}


def show_explanation(path: str, *, as_json: bool = False) -> None:
    """Print if `path` is mirrored; without a session by the rules alone. Raises TunnelkitError."""
    # The last component is not resolved, and a `/` at the end says: a directory.
    full = os.path.join(os.getcwd(), os.path.expanduser(path))
    found = _from_session(full) or _from_rules(full)
    say(json.dumps(found) if as_json else line(found))


def _from_session(path: str) -> ExplainAnswer | None:
    """Return the session's answer; None without a session, or before its mirror runs."""
    try:
        return ask(find_session(), SyncExplain(path=path))
    except (NoSessionError, MirrorError):
        return None


def _from_rules(path: str) -> ExplainAnswer:
    from tunnelkit.mirror.explain import by_policy, explain, relative_to_root
    from tunnelkit.mirror.tree.ignore import IgnoreRules, inside
    from tunnelkit.session.runtime.paths import session_paths

    state = session_paths(project_dir()).mirror_state
    specs = settings().mirror_specs()
    roots = {os.path.realpath(spec.local_dir): spec for spec in specs}
    holds = [root for root in roots if relative_to_root(root, path) is not None]
    root = holds[0] if holds else next(iter(roots))
    rules = IgnoreRules.from_exclude(roots[root].exclude, never=inside(state, Path(root)))
    found = by_policy(explain(root, rules, path), roots[root].symlinks).to_json()
    return cast("ExplainAnswer", found)


def line(found: ExplainAnswer) -> str:
    """Return an explanation as one line of text."""
    if not found["mirrored"]:
        fate = "not mirrored"
    elif found["state"] == "in_sync":
        fate = "mirrored, in sync" + (", proven on the node" if found["proven"] else "")
    elif found["state"]:
        fate = f"mirrored, {_STATES[found['state']]}"
    else:
        fate = "mirrored" if found["exists"] else "it would be mirrored"
    if found["state_reason"]:
        fate += f" ({printable(found['state_reason'])})"
    gone = found["mirrored"] and not found["exists"]
    missing = "there is no such file here; " if gone else ""
    text = f"{printable(found['path'])}: {missing}{fate}: {printable(found['reason'])}"
    if found["remote"]:
        text += f" -> {printable(found['remote'])}"
    return text
