"""tk in a pod of a real cluster, beside what people do there by hand with kubectl.

The member's connections go through a relay, which adds the round-trip time.
"""

from __future__ import annotations

import asyncio
import filecmp
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchlib import f5, forwards
from benchlib.f5editor import Round, play
from benchlib.f5ways import TK, Way, tk_way
from benchlib.kuberig import BY_HAND, POD, PodRig
from benchlib.kubeways import BY_HAND as F5_BY_HAND
from benchlib.kubeways import by_hand_way, peer_in_pod, port_forward
from benchlib.measure import Series, interleaved, timed
from benchlib.rig import background, free_port, listens, wait_until
from tests.support.kubernetes.project import stateful_set

RTTS_MS = (0.0, 40.0)
FILES, FILE_BYTES = 5000, 3200
BIG_BYTES = 1 << 30
PODS = 16
REFUSALS = 100
TK_SYNC, TK_PULL, TK_FORWARD, TK_UP, TK_IMAGE = (
    "tk sync --wait",
    "tk pull",
    "tk forward",
    "tk up POD",
    "tk up --image",
)
CP, TAR, CAT, PORT_FORWARD, EXEC, RUN = (
    "kubectl cp",
    "tar into kubectl exec",
    "kubectl exec cat",
    "kubectl port-forward",
    "kubectl exec true",
    "kubectl run, wait",
)
SAVE, SAVE_BUSY = "save to visible ms", "save to visible ms, a big file under way"
MANY, BIG, PULL = f"{FILES} files s", "1 GB up s", "1 GB down s"
START, OWN = "to a pod s", "a new pod s"
_HEAVY_ROUNDS = 3
_SCRIPT = "".join(["import sys\n\ntotal = 0\n", *(f"total += {n}\n" for n in range(1, 7))])
_STOP_LINE = 3

Rows = dict[str, Series]


@dataclass
class Found:
    """rtt -> rows of one number a round; and what is one number or one sentence."""

    f5: dict[float, Rows] = field(default_factory=dict)
    times: dict[float, dict[str, Rows]] = field(default_factory=dict)
    forwards: dict[str, Rows] = field(default_factory=dict)
    refused: str = ""
    helpers: tuple[int, float] = (0, 0.0)
    load: list[float] = field(default_factory=list)


def run(rig: PodRig, rounds: int, *, quick: bool) -> Found:
    """All of it, in one namespace."""
    found = Found()
    script = rig.project / "2.py"
    script.write_text(_SCRIPT)
    for rtt_ms in RTTS_MS:
        rig.rtt(rtt_ms)
        times = found.times[rtt_ms] = {}
        times[START] = _starts(rig, rounds)
        with rig.session():
            found.f5[rtt_ms] = _f5(rig, script, rounds, rtt_ms)
            times[SAVE] = _saves(rig, rounds)
            times[MANY] = _many(rig, min(rounds, _HEAVY_ROUNDS))
            if not rtt_ms:
                found.forwards = _forwards(rig, rounds)
                found.refused = _refusals(rig)
        found.load.append(os.getloadavg()[0])
    rig.rtt(0)
    heavy = 1 if quick else _HEAVY_ROUNDS
    with rig.session():
        found.times[0.0] |= _big(rig, heavy)
    found.times[0.0][OWN] = _own_pods(rig, heavy)
    found.helpers = _helpers(rig)
    return found


# -- F5 ---------------------------------------------------------------------------------------


def _f5(rig: PodRig, script: Path, rounds: int, rtt_ms: float) -> Rows:
    with ExitStack() as stack:
        ways: dict[str, Way] = {
            TK: stack.enter_context(tk_way(rig, script, _STOP_LINE, python="python3")),
            F5_BY_HAND: stack.enter_context(by_hand_way(rig, script, _STOP_LINE)),
        }
        seen: dict[str, list[Round]] = {name: [] for name in ways}
        for name in interleaved(list(ways), rounds, f"F5 at RTT {rtt_ms:g}"):
            ways[name].arm()
            seen[name].append(asyncio.run(play(ways[name].target)))
    values: list[tuple[str, Callable[[Round], float]]] = [
        (f5.STOPPED, lambda one: one.stopped_ms),
        (f5.LOCALS, lambda one: one.locals_ms),
        (f5.AGAIN, lambda one: one.again_ms),
        (f5.STEP_LOCALS, lambda one: median(one.step_locals_ms)),
    ]
    return {
        f5.row(measure, name): Series([value(one) for one in some])
        for measure, value in values
        for name, some in seen.items()
    }


# -- files ------------------------------------------------------------------------------------


def _saves(rig: PodRig, rounds: int) -> Rows:
    rows = {TK_SYNC: Series(), CP: Series()}
    for name in interleaved(list(rows), rounds, "a save"):
        work = _save if name == TK_SYNC else _copy
        rows[name].values.append(work(rig) * 1e3)
    return rows


def _save(rig: PodRig) -> float:
    """Seconds from the end of a save to the file's presence in the pod."""
    token, target = random.randbytes(8).hex(), rig.project / "saved.txt"
    there = rig.inside(rig.remote_project / target.name)
    new = target.with_name(".saved.txt~")
    new.write_text(token)
    start = time.perf_counter()
    new.replace(target)
    _until_text(there, token)
    return time.perf_counter() - start


def _copy(rig: PodRig) -> float:
    token, target = random.randbytes(8).hex(), rig.project.parent / "copied.txt"
    target.write_text(token)
    start = time.perf_counter()
    rig.by_hand("cp", str(target), f"{POD}:{BY_HAND}/copied.txt")
    _until_text(rig.inside(f"{BY_HAND}/copied.txt"), token)
    return time.perf_counter() - start


def _until_text(path: Path, text: str, timeout_s: float = 120.0) -> None:
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        try:
            if path.read_text() == text:
                return
        except OSError:
            pass
        time.sleep(0.0002)
    raise RuntimeError(f"{path}: not within {timeout_s:g} s")


def _many(rig: PodRig, rounds: int) -> Rows:
    rows = {TK_SYNC: Series(), TAR: Series()}
    tree = rig.project.parent / "many"
    for name in interleaved(list(rows), rounds, MANY):
        _tree(tree)
        if name == TK_SYNC:
            os.replace(tree, rig.project / "many")
            took = timed(lambda: rig.tk("sync", "--wait"))
            shutil.rmtree(rig.project / "many")
            rig.tk("sync", "--wait", "--allow-deletes")
        else:
            took = timed(lambda: _tar(rig, tree))
            shutil.rmtree(tree)
            rig.by_hand("exec", POD, "--", "rm", "-rf", f"{BY_HAND}/many")
        rows[name].values.append(took)
    return rows


def _tree(root: Path) -> None:
    for number in range(FILES):
        path = root / f"d{number // 100}" / f"{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.randbytes(FILE_BYTES))


def _tar(rig: PodRig, tree: Path) -> None:
    far = rig.kubectl("exec", "-i", POD, "--", "tar", "x", "-C", BY_HAND)
    pack = subprocess.Popen(["tar", "c", "-C", tree.parent, tree.name], stdout=subprocess.PIPE)
    subprocess.run(far, stdin=pack.stdout, env=rig.environ, check=True, capture_output=True)
    pack.wait()


def _big(rig: PodRig, rounds: int) -> dict[str, Rows]:
    """One file of 1 GB there and back, and saves meanwhile."""
    up = {TK_SYNC: Series(), TAR: Series()}
    down = {TK_PULL: Series(), CAT: Series()}
    busy = {TK_SYNC: Series()}
    base = rig.project.parent
    for name in interleaved(list(up), rounds, BIG):
        _random_file(base / "big.bin", BIG_BYTES)
        if name == TK_SYNC:
            os.replace(base / "big.bin", rig.project / "big.bin")
            up[name].values.append(timed(lambda: rig.tk("sync", "--wait", timeout_s=600.0)))
            _same(rig.project / "big.bin", rig.inside(rig.remote_project / "big.bin"))
            (rig.project / "big.bin").unlink()
            rig.tk("sync", "--wait")
        else:
            up[name].values.append(timed(lambda: _tar(rig, base / "big.bin")))
    far = rig.inside(rig.remote_project / "out" / "result.bin")
    rig.tk("run", "mkdir", "-p", "out")
    rig.tk("run", "mv", f"{BY_HAND}/big.bin", "out/result.bin")
    for name in interleaved(list(down), rounds, PULL):
        if name == TK_PULL:
            (rig.project / "out" / "result.bin").unlink(missing_ok=True)
            down[name].values.append(timed(lambda: rig.tk("pull", "out", timeout_s=600.0)))
            _same(rig.project / "out" / "result.bin", far)
        else:
            down[name].values.append(timed(lambda: _cat(rig, base / "copy.bin")))
    shutil.rmtree(rig.project / "out", ignore_errors=True)
    for _ in range(rounds):
        with _pushing(rig, base):
            busy[TK_SYNC].values.append(_save(rig) * 1e3)
    return {BIG: up, PULL: down, SAVE_BUSY: busy}


@contextmanager
def _pushing(rig: PodRig, base: Path) -> Iterator[None]:
    _random_file(base / "big.bin", BIG_BYTES)
    os.replace(base / "big.bin", rig.project / "big.bin")
    root = rig.inside(rig.remote_project)

    def some_is_there() -> bool:
        return any(one.stat().st_size > BIG_BYTES // 20 for one in root.glob(".tk-part-*"))

    try:
        wait_until(some_is_there, "the first part of a big file")
        yield
    finally:
        (rig.project / "big.bin").unlink()
        rig.tk("sync", "--wait", timeout_s=600.0)


def _cat(rig: PodRig, target: Path) -> None:
    remote = str(rig.remote_project / "out" / "result.bin")
    with target.open("wb") as out:
        argv = rig.kubectl("exec", POD, "--", "cat", remote)
        subprocess.run(argv, stdout=out, env=rig.environ, check=True)


def _random_file(path: Path, size_bytes: int) -> None:
    with path.open("wb") as out:
        for _ in range(size_bytes >> 20):
            out.write(random.randbytes(1 << 20))


def _same(one: Path, other: Path) -> None:
    if not filecmp.cmp(one, other, shallow=False):
        raise RuntimeError(f"{one} and {other} differ")


# -- forwards ---------------------------------------------------------------------------------


def _forwards(rig: PodRig, rounds: int) -> dict[str, Rows]:
    names = (forwards.DOWN, forwards.UP, forwards.ECHO, forwards.CONNECT)
    found: dict[str, Rows] = {name: {} for name in names}
    with peer_in_pod(rig) as far:
        ports = {TK_FORWARD: free_port(), PORT_FORWARD: free_port()}
        rig.tk("forward", f"{ports[TK_FORWARD]}:{far}")
        with port_forward(rig, ports[PORT_FORWARD], far):
            for port in ports.values():
                wait_until(lambda port=port: listens(port), f"port {port}")
                forwards.transfer(port, b"D", forwards.BULK_BYTES // 8)
            for way in interleaved(list(ports), rounds, "forwards"):
                for measure, value in (
                    (forwards.DOWN, forwards.transfer(ports[way], b"D", forwards.BULK_BYTES)),
                    (forwards.UP, forwards.transfer(ports[way], b"S", forwards.BULK_BYTES)),
                    (forwards.ECHO, forwards.echo_us(ports[way])),
                    (forwards.CONNECT, forwards.connect_ms(ports[way])),
                ):
                    found[measure].setdefault(way, Series()).values.append(value)
    return found


def _refusals(rig: PodRig) -> str:
    """Connections to a port where nobody listens yet, then one where somebody does."""
    near, far = free_port(), free_port()
    rig.tk("forward", f"{near}:{far}")
    lost = sum(_is_refused(near) for _ in range(REFUSALS))
    words = ("exec", "-i", POD, "--", "python3", "-c", _ONE_ANSWER.format(port=far))
    with background(rig.kubectl(*words), env=rig.environ, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        with socket.create_connection(("127.0.0.1", near), 10.0) as client:
            good = client.recv(2) == b"ok"
    return f"{lost} of {REFUSALS} were refused, then one came through: {good}"


_ONE_ANSWER = (
    "import socket; s = socket.create_server(('127.0.0.1', {port})); print('up', flush=True); "
    "s.accept()[0].sendall(b'ok')"
)


def _is_refused(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 10.0) as client:
            return client.recv(1) == b""
    except OSError:
        return True


# -- starts -----------------------------------------------------------------------------------


def _starts(rig: PodRig, rounds: int) -> Rows:
    rows = {TK_UP: Series(), EXEC: Series()}
    for name in interleaved(list(rows), rounds, START):
        if name == TK_UP:
            rows[name].values.append(timed(lambda: rig.tk("up", POD)))
            rig.tk("down")
        else:
            rows[name].values.append(timed(lambda: rig.by_hand("exec", POD, "--", "true")))
    return rows


def _own_pods(rig: PodRig, rounds: int) -> Rows:
    """The image is on the node."""
    image = "docker.io/tk/python:1"
    rows = {TK_IMAGE: Series(), RUN: Series()}
    for name in interleaved(list(rows), rounds, OWN):
        if name == TK_IMAGE:
            rows[name].values.append(timed(lambda: rig.tk("up", "--image", image)))
            rig.tk("down")
        else:
            rows[name].values.append(timed(lambda: _run_by_hand(rig, image)))
            rig.by_hand("delete", "pod", "mine", "--grace-period=0", "--force")
    return rows


def _run_by_hand(rig: PodRig, image: str) -> None:
    policy = "--image-pull-policy=IfNotPresent"
    rig.by_hand("run", "mine", f"--image={image}", policy, "--restart=Never", "--", "sleep", "600")
    rig.by_hand("wait", "pod/mine", "--for=condition=Ready", "--timeout=60s")


def _helpers(rig: PodRig) -> tuple[int, float]:
    """With many pods: how many kubectl there are, and the memory of them all in MB."""
    name = "many"
    rig.member.make(stateful_set(name, PODS))
    pods = [f"{name}-{number}" for number in range(PODS)]
    rig.member.wait_ready(*pods)
    with rig.session(f"sts/{name}"):
        wait_until(lambda: len(rig.status()["other_nodes"]) == PODS - 1, "all pods", 120.0)
        tag = f"TK_STATE_DIR={rig.environ['TK_STATE_DIR']}".encode()
        sizes = [size for one in _processes() if (size := _kubectl_mb(one, tag))]
    rig.member.admin("delete", "statefulset", name, "--wait=false")
    return len(sizes), sum(sizes)


def _processes() -> list[Path]:
    return list(Path("/proc").glob("[0-9]*"))


def _kubectl_mb(process: Path, tag: bytes) -> float:
    try:
        if not os.readlink(process / "exe").endswith("kubectl"):
            return 0.0
        if tag not in (process / "environ").read_bytes().split(b"\0"):
            return 0.0
        status = (process / "status").read_text()
    except OSError:
        return 0.0
    return int(status.split("VmRSS:")[1].split()[0]) / 1024
