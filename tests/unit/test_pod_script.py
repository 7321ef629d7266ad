"""The script that brings the agent into a pod: its places, and what it gives to the agent."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit.pod import script


def test_the_order_of_the_places() -> None:
    environ = {"TK_DIR": "/given", "HOME": "/home/me"}
    own = f"tunnelkit-{os.getuid()}"
    found = list(script.places("/setting", environ, ["/data"]))
    assert found[:5] == [
        "/given",
        f"/setting/{own}-{script._host()}",
        f"/tmp/{own}",
        f"/var/tmp/{own}",
        f"/dev/shm/{own}",
    ]
    home, mount = found[5:]
    assert home.startswith(f"/home/me/.cache/tunnelkit/{own}-")
    assert mount.startswith(f"/data/{own}-")
    for odd in ({}, {"HOME": "/"}, {"HOME": "relative", "TK_DIR": "relative"}):
        assert len(list(script.places("", odd, []))) == 3


def test_two_pods_of_one_owner_have_two_places_on_a_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rank in (0, 1):
        name = f"llama-3-1-70b-instruct-finetune-worker-group-{rank}"
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        found.append(list(script.places("/setting", {"HOME": "/home/me"}, ["/data"])))
    assert len(found[0]) == 6
    assert [one for one in found[0] if one in found[1]] == found[0][1:4], "those of the pod alone"
    # A hostPath, which all pods of the node see.
    on_host = next(script.places("", {}, ["/tmp"]))
    assert on_host.startswith(f"/tmp/tunnelkit-{os.getuid()}-llama")


def test_writable_mounts_are_those_that_may_hold_files(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    lines = [
        "overlay / overlay ro,relatime 0 0",
        "proc /proc proc rw 0 0",
        "tmpfs /dev/shm tmpfs rw 0 0",
        f"ext4 {tmp_path}/a\\040b ext4 rw,relatime 0 0",
        f"ext4 {tmp_path} ext4 ro,relatime 0 0",
        "short",
    ]
    assert script.writable_mounts("\n".join(lines)) == [f"{tmp_path}/a b"]


def test_a_place_is_private_and_writable_or_the_next_one_is_taken(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    tried = [str(tmp_path / name) for name in ("open", "file", "link", "good/place")]
    found, reasons = script.find_place(iter(tried))
    assert found == tried[-1] and len(reasons) == 3
    assert os.stat(found).st_mode & 0o777 == 0o700 and os.listdir(found) == []
    assert script.find_place(iter(tried[:2])) == (None, reasons[:2])
    name = "a" * 103
    assert script.find_place(iter(tried[-1:]), name) == (
        None,
        [f"{tried[-1]}: too long for a socket's path"],
    )


def test_who_is_second_to_make_the_place_takes_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod's main process waits in it for the agent that the other brings."""
    mkdir = os.mkdir

    def other_is_first(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", other_is_first)
    place = str(tmp_path / "place")
    assert script.find_place(iter([place])) == (place, [])


def test_home_and_user_are_given_where_the_pod_has_none(tmp_path: Path) -> None:
    base = str(tmp_path)
    for home in ("", "/", "/nowhere", "relative"):
        given = script.environment(base, {"HOME": home})
        assert given["HOME"] == f"{base}/home" and Path(given["HOME"]).is_dir()
    assert "HOME" not in script.environment(base, {"HOME": base})


def _carried_out(order: dict[str, object], stdin: bytes = b"", **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", script.__file__, json.dumps(order)],
        input=stdin,
        capture_output=True,
        env={**os.environ, **env},
        timeout=30,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_boot_takes_the_file_and_becomes_it(tmp_path: Path) -> None:
    """A small program stands for the agent's zip: it shows its argv and environment."""
    agent = b"import os, sys; print(sys.argv[1:], os.environ['TK_PLACE'], os.environ['TK_NODE'])"
    place = tmp_path / "tk"
    order = {
        "do": "boot",
        "name": "a",
        "file": "agent.py",
        "size": len(agent),
        "digest": hashlib.sha256(agent).hexdigest(),
        "node": "pod-0",
        "start": True,
    }
    code, out, err = _carried_out(order, agent, TK_DIR=str(place), HOME="/")
    first, second = out.splitlines()
    told = json.loads(first)
    assert (code, err) == (0, "")
    assert (told["have"], told["runs"], told["base"]) == (False, False, str(place))
    assert told["gives"] == ["HOME"] and told["home"] == f"{place}/home"
    assert second == f"['attach', 'a', '--start'] {place} pod-0"
    code, out, err = _carried_out({**order, "start": False}, b"", TK_DIR=str(place))
    assert json.loads(out.splitlines()[0])["have"] is True and code == 0
    code, out, err = _carried_out({**order, "file": "b.py"}, agent[:9], TK_DIR=str(place))
    assert code == script.NO_PLACE and "the stream ended before all" in err
    assert sorted(os.listdir(place)) == ["agent.py", "home"]


def test_clean_removes_all_but_what_is_the_users(tmp_path: Path) -> None:
    base = tmp_path / "tk"
    order = {"do": "clean", "name": "a", "file": "agent.zip", "wait_s": 0}
    here = {"TK_DIR": str(base)}
    for name in ("home", "jobs"):
        (base / name).mkdir(parents=True)
    base.chmod(0o700)
    (base / "agent.zip").write_text("")
    (base / "other.sock").write_text("")
    assert _carried_out(order, **here)[0] == 0
    assert (base / "agent.zip").exists(), "another agent uses it"
    (base / "other.sock").unlink()
    (base / "home" / "mine").write_text("")
    left = subprocess.Popen(["sleep", "1000"], env={**os.environ, "TK_PLACE": str(base)})
    assert _carried_out(order, **here)[0] == 0
    assert left.wait(10) != 0, "what the agent's commands left behind is ended"
    assert [str(one.relative_to(base)) for one in base.rglob("*")] == ["home", "home/mine"]
    (base / "home" / "mine").unlink()
    (base / "agent.zip").write_text("")
    assert _carried_out(order, **here)[0] == 0 and not base.exists()
    assert _carried_out(order, **here)[0] == 0


def test_a_directory_of_the_users_that_is_named_keeps_all_that_is_in_it(tmp_path: Path) -> None:
    mine, agent = tmp_path / "me", b"pass"
    mine.mkdir(mode=0o700)
    for name in ("thesis.tex", "agent.zip"):
        (mine / name).write_text("mine")
    order = {"name": "a", "file": "agent.zip", "size": len(agent), "node": "pod-0", "wait_s": 0}
    order.update(digest=hashlib.sha256(agent).hexdigest(), directory="$MINE")
    place = mine / f"tunnelkit-{os.getuid()}-{script._host()}"
    here = {"MINE": str(mine), "HOME": "/", "TK_DIR": ""}
    code, out, err = _carried_out({**order, "do": "boot"}, agent, **here)
    assert (code, err, json.loads(out)["base"]) == (0, "", str(place))
    assert sorted(os.listdir(place)) == ["agent.zip", "home"]
    assert _carried_out({**order, "do": "clean"}, **here)[0] == 0
    assert sorted(os.listdir(mine)) == ["agent.zip", "thesis.tex"]
    assert (mine / "agent.zip").read_text() == "mine"


def test_a_place_that_turns_out_to_be_none_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume may make each directory another user's, or everybody's: NFS, SMB."""
    shared, there, good = (tmp_path / name for name in ("nfs/a", "nfs/b", "good/c"))
    there.mkdir(parents=True)
    is_ours = script._is_ours
    monkeypatch.setattr(script, "_is_ours", lambda path: "nfs" not in path and is_ours(path))
    found, reasons = script.find_place(iter(map(str, (shared, there, good))))
    assert found == str(good) and len(reasons) == 2
    assert not shared.exists() and there.exists()


def test_what_another_container_runs_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hostPID another pod's session is seen, whose place has the same path."""
    env = {**os.environ, script.PLACE: str(tmp_path)}
    mark = f"{script.PLACE}={tmp_path}".encode()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as cat:
        assert cat.stdin is not None and cat.stdout is not None
        cat.stdin.write(b"1")  # its answer: it is `cat` by now
        cat.stdin.flush()
        assert cat.stdout.read(1) == b"1"
        assert script._carrying(mark, []) == [cat.pid]
        there = {"1": "mnt:[3]", str(cat.pid): "mnt:[2]"}
        monkeypatch.setattr(script, "_mounts_of", lambda pid: there.get(pid, "mnt:[1]"))
        script._end_started(str(tmp_path))
        assert cat.poll() is None


#: Runs another program with the first one's environment, which ends only by SIGKILL.
_CHAIN = (
    "import os, subprocess, sys; "
    "child = subprocess.Popen(['sh', '-c', 'trap : TERM; echo $$; while :; do sleep 0.1; done']); "
    "child.wait()"
)


@pytest.mark.parametrize("first", ["host", "own"])
def test_a_program_with_mounts_of_its_own_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """As apptainer, bwrap and `unshare -m` start them. With hostPID the parents tell it, else all
    processes that are seen are the container's."""
    env = {**os.environ, script.PLACE: str(tmp_path)}
    argv = [sys.executable, "-c", _CHAIN]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) as outer:
        assert outer.stdout is not None
        inner = int(outer.stdout.readline())
        there = {str(inner): "mnt:[2]"}
        if first == "host":
            there["1"] = "mnt:[3]"
        else:
            there[str(outer.pid)] = "mnt:[2]"
        monkeypatch.setattr(script, "_mounts_of", lambda pid: there.get(pid, "mnt:[1]"))
        try:
            script._end_started(str(tmp_path))
            assert outer.wait(10) != 0
            assert select.select([outer.stdout], [], [], 10)[0], "nobody has the pipe any more"
            assert outer.stdout.read() == b""
        finally:
            if script._has(str(inner), f"{script.PLACE}={tmp_path}".encode()):
                os.kill(inner, signal.SIGKILL)
