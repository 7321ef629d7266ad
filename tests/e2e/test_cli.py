"""What scripts and people at a terminal may rely on: exit codes, streams, JSON, keys, colours.

One session serves the whole file.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
import termios
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.ports import free_port
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import _TK, Project, eventually, project_on
from tunnelkit.errors import ExitCode
from tunnelkit.lab import LabInfo

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(lab: LabInfo) -> AsyncIterator[Project]:
    """A project whose session is up on node1."""
    if lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    async with project_on(lab) as project:
        await project.up("node1", "--gpus", "1", "--cpus", "2")
        yield project


# -- tk run ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "exit 255"], 255),
        (["nosuchcommand"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "kill -9 $$"], 128 + 9),
        (["sh", "-c", "kill -TERM $$"], 128 + 15),
    ],
)
async def test_run_ends_as_the_command_did(up: Project, words: list[str], code: int) -> None:
    done = await up.tk("run", *words, code=code)
    assert not done.out
    assert "Traceback" not in done.err and len(done.err.splitlines()) <= 1


async def test_in_the_background_of_a_shell_it_goes_on_and_fg_gives_it_the_keys(
    up: Project,
) -> None:
    async with on_a_terminal(up, "--norc", "-i", program="/bin/bash", PS1="$ ") as screen:
        screen.type(f"{_TK} run sh -c 'echo far-$((1+1)); read x; echo got-$x' &\r")
        await screen.shows("far-2")
        screen.type("jobs -l\r")
        await screen.shows(r"\[1\].* Running")
        screen.type("fg\r")
        await screen.shows("^.*tk run sh")
        screen.type("hello\r")
        await screen.shows("got-hello")
        await screen.shows(r"\$ ")
        screen.type("stty -a | tr ' ' '\\n' | grep -x -e icanon -e -icanon\r")
        await screen.shows("^icanon")
        screen.type("exit\r")
        await screen.ended()


async def test_its_message_begins_a_line_of_its_own_on_a_terminal(up: Project) -> None:
    async with on_a_terminal(up, "run", "nosuchcommand") as screen:
        assert await screen.ended() == 127
        await screen.shows("command not found")
        assert "command not found\r\n" in screen.raw


async def test_a_command_that_is_not_there_is_named(up: Project) -> None:
    assert (await up.tk("run", "nosuchcommand", code=127)).err == (
        "tk: nosuchcommand: command not found\n"
    )


async def test_in_a_directory_that_is_not_mirrored_it_says_so(up: Project) -> None:
    inside = up.dir / "venv"
    inside.mkdir()
    (inside / "pyvenv.cfg").write_text("home = /usr/bin\n")
    process = await asyncio.create_subprocess_exec(
        *(str(_TK), "run", "pwd"), cwd=inside, env=up.env, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    [line] = err.decode().splitlines()
    assert process.returncode
    assert f"has no directory {up.remote('venv')}, which stands for yours" in line
    assert "cd to one that is mirrored" in line


async def test_options_after_the_command_are_the_commands(up: Project) -> None:
    done = await up.tk("run", "printf", "%s|", "--help", "-n", "--", "a b", "$HOME", "")
    assert done.out == "--help|-n|--|a b|$HOME||"


async def test_a_megabyte_through_cat_is_the_same(up: Project) -> None:
    data = random.Random(5).randbytes(1 << 20)
    process = await asyncio.create_subprocess_exec(
        *(str(_TK), "run", "cat"),
        cwd=up.dir,
        env=up.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(data)
    assert process.returncode == 0
    assert len(out) == len(data)
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()


async def test_a_megabyte_out_is_whole_though_the_command_ends_at_once(up: Project) -> None:
    done = await up.tk("run", "head", "-c", "1048576", "/dev/zero")
    assert len(done.out) == 1048576


async def test_stdin_ends_where_it_ends_here(up: Project) -> None:
    done = await up.tk("run", "wc", "-c", stdin=b"abc")
    assert done.out.strip() == "3"


async def test_stderr_is_kept_apart(up: Project) -> None:
    script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done"
    done = await up.tk("run", "sh", "-c", script)
    assert done.out == "out 1\nout 2\nout 3\n"
    assert done.err == "err 1\nerr 2\nerr 3\n"


async def test_a_pipe_is_no_terminal(up: Project) -> None:
    done = await up.tk("run", "sh", "-c", "tty; test -t 1 || echo no")
    assert done.out == "not a tty\nno\n"


async def test_signals_reach_the_far_command(up: Project) -> None:
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done"
    terminal = await up.terminal("run", "sh", "-c", script)
    await terminal.line("^ready$")
    terminal.process.send_signal(signal.SIGINT)
    await terminal.line("^caught$")
    assert await terminal.ended() == 9


async def test_the_far_command_ends_with_a_killed_tk(up: Project) -> None:
    script = "echo $$; exec sleep 600"
    terminal = await up.terminal("run", "sh", "-c", script)
    pid = int((await terminal.line(r"^(\d+)$"))[1])
    terminal.process.kill()
    await terminal.ended()
    await eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the far command ends")


# -- at a terminal --------------------------------------------------------


async def test_run_at_a_terminal_has_one_there_too(up: Project) -> None:
    script = "tty; stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2 && exit 4"
    async with on_a_terminal(up, "run", "sh", "-c", script, rows=33, columns=97) as screen:
        await screen.shows(r"^/dev/pts/\d+$")
        await screen.shows(r"^33 97$")
        await screen.shows(r"^xterm-256color$")
        assert await screen.ended() == 4


async def test_the_window_can_be_resized(up: Project) -> None:
    script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.1; done"
    async with on_a_terminal(up, "run", "sh", "-c", script) as screen:
        await screen.shows("^ready$")
        screen.resize(41, 90)
        await screen.shows("^41 90$")
        assert await screen.ended() == 0


async def test_ctrl_c_at_a_terminal_reaches_the_far_command(up: Project) -> None:
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done"
    async with on_a_terminal(up, "run", "sh", "-c", script) as screen:
        await screen.shows("^ready$")
        screen.type("\x03")
        await screen.shows("caught$")
        assert await screen.ended() == 9


async def test_the_terminal_is_put_back(up: Project) -> None:
    async with on_a_terminal(up, "run", "sh", "-c", "echo in; read x; exit 2") as screen:
        await screen.shows("^in$")
        raw = screen.flags()
        screen.type("\n")
        assert await screen.ended() == 2
        cooked = screen.flags()
    assert not raw & (termios.ECHO | termios.ICANON | termios.ISIG)
    assert cooked & termios.ECHO and cooked & termios.ICANON and cooked & termios.ISIG


async def test_shell(up: Project) -> None:
    async with on_a_terminal(up, "shell") as screen:
        screen.type("echo the $((6 * 7)) $SLURM_JOB_ID; pwd; stty size\n")
        job = (await up.status())["job"]["id"]
        await screen.shows(rf"the 42 {job}$")  # a bare sh may stand its prompt before it
        await screen.shows(rf"^{up.remote()}$")
        await screen.shows("^30 100$")
        screen.type("exit 5\n")
        assert await screen.ended() == 5


async def test_colours_only_on_a_terminal_that_wants_them(up: Project) -> None:
    async with on_a_terminal(up, "status") as screen:
        assert await screen.ended() == 0
        await screen.shows(r"forward|F5 port")
        assert "\x1b[32mready\x1b[0m" in screen.raw
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        async with on_a_terminal(up, "status", **env) as screen:
            assert await screen.ended() == 0
            await screen.shows(r"F5 port")
            assert "\x1b" not in screen.raw
    for words in (["up"], ["status"], ["config", "show"], ["sync"], ["run", "true"]):
        done = await up.tk(*words)
        assert "\x1b" not in done.out + done.err and "\r" not in done.out + done.err


async def test_up_again_is_one_line_at_a_terminal(up: Project) -> None:
    async with on_a_terminal(up, "up") as screen:
        await screen.shows(rf"ready on node1 \(job \d+\); F5 goes to 127\.0\.0\.1:{up.port}")
        assert await screen.ended() == 0
        assert len(screen.lines) == 1, screen.lines


# -- JSON and text --------------------------------------------------------


async def test_json_is_json(up: Project) -> None:
    port = free_port()
    for words in (
        ["up", "--json"],
        ["status", "--json"],
        ["sync", "--json"],
        ["forward", "--json", str(port)],
        ["forward", "--json", "--cancel", str(port)],
        ["config", "show", "--json"],
        ["lab", "status", "--json"],
    ):
        done = await up.tk(*words)
        assert isinstance(done.json, dict), done
        assert not done.err, done


async def test_several_forwards_are_json_lines(up: Project) -> None:
    ports = [free_port(), free_port()]
    done = await up.tk("forward", "--json", *map(str, ports))
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["forward"] for answer in answers] == [f"{p}:127.0.0.1:{p}" for p in ports]
    text = (await up.tk("status")).out
    assert all(f"forward  {port}:127.0.0.1:{port} by " in text for port in ports)
    await up.tk("forward", "--cancel", *map(str, ports))
    assert "forward" not in (await up.tk("status")).out


async def test_status_from_elsewhere_finds_the_only_session(up: Project) -> None:
    env = {**up.env, "PWD": "/"}
    process = await asyncio.create_subprocess_exec(
        *(str(_TK), "status", "--json"), cwd="/", env=env, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["project"] == str(up.dir)


async def test_another_node_is_refused_while_this_one_is_up(up: Project) -> None:
    done = await up.tk("up", "node2", code=ExitCode.USAGE)
    assert "this project's session is on node1" in done.err
    assert "tk down" in done.err and len(done.err.splitlines()) == 1


async def test_not_ready_without_a_loop(up: Project) -> None:
    done = await up.tk("ready", "--sync", "--timeout", "5", code=ExitCode.DEBUG)
    assert done.err.startswith("tk: no debug loop is running — ")
    assert len(done.err.splitlines()) == 1


# -- logs -----------------------------------------------------------------

TALKER = "seq 5; while ! [ -e go ]; do sleep 0.1; done; echo later; sleep 600"


async def test_logs(up: Project) -> None:
    loop = await up.loop("sh", "-c", TALKER, armed=False)
    await loop.line("^5$")
    assert (await up.tk("logs", "-n", "2")).out == "4\n5\n"
    assert (await up.tk("logs", "-n", "0")).out == ""
    assert "starting" in (await up.tk("logs")).out
    assert "agent: job" in (await up.tk("logs", "--session")).out

    follower = await up.terminal("logs", "-f", "-n", "1")
    await follower.line("^5$")
    up.remote("go").touch()
    await follower.line("^later$")
    follower.interrupt()
    assert await follower.ended() == ExitCode.INTERRUPTED
    assert "Traceback" not in follower.text

    await loop.quit()
    up.remote("go").unlink()


async def test_a_reader_that_has_seen_enough_is_no_error(up: Project) -> None:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", '"$0" logs --session -n 1000 | head -n 1; exit 0', str(_TK)),
        cwd=up.dir,
        env=up.env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert len(out.splitlines()) == 1 and not err


async def test_ctrl_c_is_the_pagers(up: Project) -> None:
    """Ended with it, a pager such as less could not give the terminal its echo back."""
    pager = up.dir / "pager"
    pager.write_text(
        f"#!{sys.executable}\n"
        "import signal, sys, termios\n"
        "text = sys.stdin.read()\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "before = termios.tcgetattr(1)\n"
        "quiet = [*before]\n"
        "quiet[3] &= ~termios.ECHO\n"
        "termios.tcsetattr(1, termios.TCSANOW, quiet)\n"
        "print('reads', flush=True)\n"
        "signal.sigwait({signal.SIGINT})\n"
        "termios.tcsetattr(1, termios.TCSANOW, before)\n"
        "print('gone on', flush=True)\n"
    )
    pager.chmod(0o755)
    async with on_a_terminal(up, "help", "why", PAGER=str(pager)) as screen:
        await screen.shows("reads")
        assert not screen.flags() & termios.ECHO
        screen.type("\x03")
        await screen.shows("gone on")
        assert await screen.ended() == 0
        assert screen.flags() & termios.ECHO
