"""Explanation why a path is mirrored or not, by the scan's own rules.

`explain` works by lstat from the root down and needs neither a session nor a cluster;
`sync_state` adds the path's state on the cluster.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass, replace

from tunnelkit.errors import TunnelkitError
from tunnelkit.mirror.api import DigestCheck
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry, same_content
from tunnelkit.mirror.remote import scripts
from tunnelkit.mirror.remote.edits import matches_sent, remotely_edited
from tunnelkit.mirror.tree.ignore import (
    DEFAULT,
    GITIGNORE,
    OWN,
    TKIGNORE,
    VENV_MARK,
    IgnoreRules,
    Rule,
    read_rules,
)
from tunnelkit.mirror.tree.scanner import DIR, FILE, Entry, digest, lstat
from tunnelkit.mirror.tree.symlinks import IGNORE
from tunnelkit.remote_script import RemoteHost

#: States of a mirrored path; `Explanation.state` is one of them, or None.
IN_SYNC, PENDING, DIFFERS = "in_sync", "pending", "differs"
_NODE_TIMEOUT_S = 30.0
_SPECIAL = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a fifo",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation for one path.

    path: relative to the root; as given if it lies outside. reason: for the user.
    rule: the line that decided, if one did. kind: "rule", "outside", "symlink", "special",
    "missing" or "none". exists: True if it is there. state: only with a session. proven:
    the compute node has read it back. remote: its path on the cluster.
    """

    path: str
    mirrored: bool
    kind: str
    reason: str
    rule: Rule | None = None
    exists: bool = True
    state: str | None = None
    state_reason: str | None = None
    proven: bool = False
    remote: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the JSON object of `tk sync --explain --json`."""
        rule = self.rule
        return {
            "path": self.path,
            "mirrored": self.mirrored,
            "kind": self.kind,
            "reason": self.reason,
            "rule": None
            if rule is None
            else {"source": rule.source, "line": rule.line or None, "pattern": rule.pattern},
            "exists": self.exists,
            "state": self.state,
            "state_reason": self.state_reason,
            "proven": self.proven,
            "remote": self.remote,
        }


def by_policy(found: Explanation, policy: str) -> Explanation:
    """Apply the policy for symlinks to an explanation."""
    if found.kind != "symlink" or policy != IGNORE:
        return found
    if not found.mirrored:
        reason = found.reason.replace("sent as one and not followed", "neither sent nor followed")
        return replace(found, reason=reason)
    reason = 'a symlink, and [mirror] symlinks = "ignore"'
    return replace(
        found, mirrored=False, reason=reason, state=None, state_reason=None, proven=False
    )


def relative_to_root(root: str, path: str) -> str | None:
    """Return `path` (absolute) relative to `root` (symlinks resolved), or None if outside.

    "." for the root itself. The last component is not followed: a symlink is itself mirrored.
    Blocking, if the text of `path` does not begin with the root's.
    """
    plain = os.path.abspath(path)
    if (relative := _below(root, plain)) is not None:
        return relative  # no file is looked at
    parent, name = os.path.split(plain)
    if (relative := _below(root, os.path.join(os.path.realpath(parent), name))) is not None:
        return relative
    return "." if os.path.realpath(plain) == root else None


def _below(root: str, path: str) -> str | None:
    relative = os.path.relpath(path, root)
    return None if relative == ".." or relative.startswith("../") else relative


def explain(root: str, rules: IgnoreRules, path: str) -> Explanation:
    """Explain `path` (absolute) by the rules and files as they are now (blocking)."""
    relative = relative_to_root(root, path)
    if relative is None:
        return Explanation(path, False, "outside", f"it lies outside of {root}")
    if relative == ".":
        return Explanation(".", True, "none", "it is the mirrored directory itself")
    is_dir = path.endswith("/")
    parts = relative.split("/")
    base, taken_back = "", None
    for position, name in enumerate(parts):
        last = position == len(parts) - 1
        rules = enter(root, base, rules)
        current = base + name
        mode = _mode(os.path.join(root, current))
        here_dir = stat.S_ISDIR(mode) if mode is not None else (is_dir or not last)
        rule = rules.rule_for(current, name, here_dir)
        if (
            here_dir
            and (rule is None or not rule.ignores)
            and os.path.lexists(os.path.join(root, current, VENV_MARK))
        ):
            rule = rules.venv(current) or rule
        if rule is not None and rule.ignores:
            return Explanation(
                relative,
                False,
                "rule",
                _left_out(rule, current, last=last),
                rule,
                os.path.lexists(os.path.join(root, relative)),
            )
        taken_back = rule
        if mode is not None and not stat.S_ISDIR(mode) and not last:
            return _below_no_directory(root, relative, current, mode)
        base = current + "/"
    return _mirrored(root, relative, _mode(os.path.join(root, relative)), taken_back)


def enter(root: str, base: str, rules: IgnoreRules) -> IgnoreRules:
    """Return the rules inside directory `base`, with its ignore files."""
    directory = os.path.join(root, base)
    return rules.enter(
        base,
        read_rules(os.path.join(directory, GITIGNORE)),
        read_rules(os.path.join(directory, TKIGNORE)),
    )


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None


def _left_out(rule: Rule, path: str, *, last: bool) -> str:
    what = "" if last else f"its directory {path} is "
    if rule.source == OWN:
        return f"{what}left out: tk keeps its own files there"
    if rule.source == DEFAULT:
        back = f"; `!/{path}` in .tkignore takes it back" if last else ""
        return f"{what}left out by default: {rule.pattern}{back}"
    return f"{what}left out by {rule}"


def _below_no_directory(root: str, relative: str, above: str, mode: int) -> Explanation:
    if not stat.S_ISLNK(mode):
        reason = f"{above} is no directory"
        return Explanation(relative, False, "missing", reason, exists=False)
    real = os.path.realpath(os.path.join(root, relative))
    inside = relative_to_root(root, real)
    lead = f"it leads to {inside}" if inside is not None else "it leads out of the directory"
    return Explanation(
        relative,
        False,
        "symlink",
        f"{above} is a symlink, sent as one and not followed ({lead})",
        exists=os.path.lexists(os.path.join(root, relative)),
    )


def _mirrored(root: str, relative: str, mode: int | None, rule: Rule | None) -> Explanation:
    back = f"taken back by {rule}" if rule is not None else "no rule leaves it out"
    if mode is None:
        return Explanation(relative, True, "missing", back, rule, exists=False)
    special = _SPECIAL.get(stat.S_IFMT(mode))
    if special is not None:
        return Explanation(relative, False, "special", f"it is {special}")
    found = Explanation(relative, True, "none" if rule is None else "rule", back, rule)
    if stat.S_ISLNK(mode):
        full = os.path.join(root, relative)
        target = os.path.realpath(full)
        if relative_to_root(root, target) is None:
            text = f"a symlink, sent as one; it leads out of the directory, and {target} isn't sent"
            return replace(found, kind="symlink", reason=text)
        return replace(found, kind="symlink", reason=f"a symlink, sent as one; {back}")
    return found


@dataclass(frozen=True, slots=True)
class RemoteComparison:
    """Both ends of a running mirror.

    check: reads digests back on the compute node. conflicts: paths that are known to have been
    changed on the cluster.
    """

    local_root: str
    remote: RemoteHost
    remote_root: str
    manifest: Manifest
    check: DigestCheck | None = None
    conflicts: Collection[str] = ()


async def sync_state(found: Explanation, ends: RemoteComparison) -> Explanation:
    """Return `found` with its state; without a connection, with the last known state."""
    if not found.mirrored or found.path == ".":
        return found
    row = ends.manifest.rows.get(found.path)
    if not found.exists:
        if row is None or not row.sent:
            return found
        return replace(found, state=PENDING, state_reason="its deletion is not done there yet")
    try:
        entry, text = await asyncio.to_thread(_read, ends.local_root, found.path)
    except OSError as error:
        reason = f"can't be read: {error.strerror or error}"
        return replace(found, state=PENDING, state_reason=reason)
    if found.path in ends.conflicts:
        reason = "it was changed on the cluster; choose by tk sync --ours or --theirs"
        return replace(found, state=DIFFERS, state_reason=reason)
    if row is None or not row.sent:
        reason = "not sent yet" if row is None else "on its way"
        return replace(found, state=PENDING, state_reason=reason)
    if entry is None or not same_content(row, entry, text):
        return replace(found, state=PENDING, state_reason="changed here since it was sent")
    try:
        async with asyncio.timeout(_NODE_TIMEOUT_S):
            differs = await _differs(found.path, row, ends)
    except (TunnelkitError, TimeoutError) as error:
        why = error.one_line() if isinstance(error, TunnelkitError) else "no answer in time"
        reason = f"as far as is known; the cluster can't be asked: {why}"
        return replace(found, state=IN_SYNC, state_reason=reason, proven=row.proven)
    if differs is not None:
        return replace(found, state=DIFFERS, state_reason=differs)
    proven = row.entry.kind == FILE and (row.proven or ends.check is not None)
    return replace(found, state=IN_SYNC, proven=proven)


def _read(root: str, path: str) -> tuple[Entry | None, str]:
    """Return a local path's entry and its digest (blocking)."""
    entry = lstat(root, path)
    if entry is None or entry.kind == DIR:
        return entry, ""
    return entry, digest(root, path, entry.kind)


async def _differs(path: str, row: ManifestEntry, ends: RemoteComparison) -> str | None:
    """Return how the file on the cluster differs from what was sent; None if it does not."""
    there = (await scripts.stat_paths(ends.remote, ends.remote_root, [path])).get(path)
    if there is None:
        return "it is gone on the cluster"
    if not matches_sent(row, there) and await remotely_edited(
        ends.remote, ends.remote_root, {path: there}, {path: (row.digest,)}
    ):
        return "it was changed on the cluster"
    if ends.check is not None and row.entry.kind == FILE and await ends.check({path: row.digest}):
        return "the compute node reads other content"
    return None
