"""File systems and limits: what the program met, and how it is there now."""

from __future__ import annotations

from tunnelkit.diagnosis.ended.case import Case
from tunnelkit.diagnosis.ended.exceptions import certainty_of, hit_of_end, source_lines
from tunnelkit.diagnosis.ended.log.marks import Hit
from tunnelkit.diagnosis.evidence.storage import RoomView
from tunnelkit.diagnosis.storage import full_quota, quota_lines, seen_room, used_of
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

_DU = NextStep("what takes the room", "tk run sh -c 'du -xh -d1 . | sort -h | tail'")
_STEPS: dict[str, tuple[NextStep, ...]] = {
    "quota-full": (_DU, NextStep("delete or move it, or ask for more")),
    "disk-full": (_DU, NextStep("write elsewhere: $TMPDIR, scratch")),
    "inodes-full": (NextStep("many small files: delete them, or pack them into one"),),
    "fs-readonly": (NextStep("write elsewhere; the administrator knows why it is read-only"),),
    "fs-stale": (NextStep("open the file again; was it replaced while the job ran?"),),
    "fs-lost": (NextStep("tell the administrator; another node may reach it"),),
    "files-limit": (
        NextStep("`ulimit -n` in the script, as far as the hard limit goes"),
        NextStep("DataLoader: torch.multiprocessing.set_sharing_strategy('file_system')"),
    ),
    "threads-limit": (NextStep("OMP_NUM_THREADS=1, fewer workers; `ulimit -u` is the limit"),),
}
#: What is on each node by itself: the login host's says nothing about it.
_NODES_OWN = ("/tmp", "/dev/shm", "/var/tmp", "/run")
_FULL = 0.99


def files(case: Case) -> Verdict | None:
    """Rule 15: no room, no such file system any more, or a limit of the process."""
    hit = hit_of_end(case, *_STEPS)
    if hit is None or not case.failed:
        return None
    found = case.failure
    certainty: Certainty | None = Certainty.LIKELY
    if found is not None:
        certainty = certainty_of(case, found)
    if certainty is None:
        return None
    path = hit.group("path")
    room = _room(case, path)
    code = _code(hit, path, room)
    quota = full_quota(case.end.quotas, room) if code in ("quota-full", "disk-full") else None
    # A server may say "no space" for a quota.
    code = "quota-full" if quota is not None else code
    because = [Evidence(hit.text[:200], "log"), case.record()]
    if room is not None:
        because.insert(1, seen_room(room))
    because[1:1] = quota_lines(case.end.quotas, room)
    if found is not None:
        because[1:1] = source_lines(found)
    where = f": {path}" if path else ""
    sentence = "all its inodes are used" if code == "inodes-full" else hit.sentence
    sentence = "/dev/shm of the node is full" if code == "shm-full" else sentence
    sentence = used_of(quota, room) if quota is not None else sentence
    return failed_by(
        code,
        f"{sentence}{where}",
        certainty,
        tuple(because),
        next_steps=_STEPS.get(code, _STEPS["disk-full"]),
    )


def _code(hit: Hit, path: str, room: RoomView | None) -> str:
    if hit.mark.code != "disk-full":
        return hit.mark.code
    if path.startswith("/dev/shm/"):
        return "shm-full"
    inodes = room.inodes_used if room is not None else None
    return "inodes-full" if inodes is not None and inodes >= _FULL else "disk-full"


def _room(case: Case, path: str) -> RoomView | None:
    """Return the file system of the path, as the login host sees it."""
    if not path:
        full = [one for one in case.end.rooms if one.used >= _FULL and not _of_node(one.path)]
        return full[0] if full else None
    if _of_node(path):
        return None
    under = [one for one in case.end.rooms if (path + "/").startswith(one.path.rstrip("/") + "/")]
    return max(under, key=lambda one: len(one.path), default=None)


def _of_node(path: str) -> bool:
    return any(path == one or path.startswith(one + "/") for one in _NODES_OWN)
