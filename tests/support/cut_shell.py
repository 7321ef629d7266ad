"""A remote shell for rsync that is none: the far end is a child here, and its link can be cut at
any chunk of what goes there.

argv: DIRECTORY HOST WORD... In DIRECTORY: `plan` (HOW AT), and what comes back, `chunks` (how many
went there) and `held` (the process group of a far end that stands still).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

LOST, LATE, UNANSWERED = "lost", "late", "unanswered"
BROKEN = 255
_LINGER_S = 0.02


def main() -> int:
    directory, _, *words = sys.argv[1:]
    with open(os.path.join(directory, "plan")) as file:
        how, at = file.read().split()
    far = subprocess.Popen(
        ["sh", "-c", " ".join(words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    chunks, fired = _carry(far, how, int(at))
    # At one stroke: rsync may be gone already, and the mirror asks for it now.
    draft = os.path.join(directory, "chunks.new")
    with open(draft, "w") as file:
        file.write(f"{chunks} {int(fired)}")
    os.replace(draft, os.path.join(directory, "chunks"))
    if not fired:
        return far.wait()
    if how == LATE:
        with open(os.path.join(directory, "held"), "a") as file:
            file.write(f"{far.pid}\n")
    else:
        far.wait()
    return BROKEN


def _carry(far: subprocess.Popen[bytes], how: str, at: int) -> tuple[int, bool]:
    """Until its end, or the cut. How many chunks went there, and whether it was cut."""
    assert far.stdin is not None and far.stdout is not None
    there, back = far.stdin.fileno(), far.stdout.fileno()
    chunks, sources = 0, [0, back]
    while back in sources:
        ready, _, _ = select.select(sources, [], [])
        if back in ready:
            data = os.read(back, 1 << 16)
            if not data:
                return chunks, False
            os.write(1, data)
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                sources.remove(0)
                far.stdin.close()
                continue
            if chunks == at:
                _cut(far, how, data)
                return chunks, True
            chunks += 1
            with contextlib.suppress(BrokenPipeError):
                os.write(there, data)
    return chunks, False


def _cut(far: subprocess.Popen[bytes], how: str, data: bytes) -> None:
    """LOST: this chunk and all after it never comes. UNANSWERED: all goes there, nothing comes
    back. LATE: the far end stands still, and what is sent waits for it."""
    assert far.stdin is not None and far.stdout is not None
    if how == LATE:
        os.killpg(far.pid, signal.SIGSTOP)
    if how != LOST:
        with contextlib.suppress(BrokenPipeError):
            os.write(far.stdin.fileno(), data)
            while select.select([0], [], [], _LINGER_S)[0] and (more := os.read(0, 1 << 16)):
                os.write(far.stdin.fileno(), more)
    far.stdin.close()
    if how == UNANSWERED:
        while os.read(far.stdout.fileno(), 1 << 16):
            pass
    far.stdout.close()


if __name__ == "__main__":
    sys.exit(main())
