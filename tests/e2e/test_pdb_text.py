"""`tk pdb --port`: pdb's plain text for nc, as OpenPAI's remote debugger gives it (seed 000)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support import processes
from tests.support.ports import free_port
from tests.support.terminal import PATIENCE_S, Terminal
from tests.support.tkrig import Project, line_of

SCRIPT = """\
    import sys
    print("begun", sys.argv[1:])
    name = input("name? ")
    print("hello", name)
    print("to the log", file=sys.stderr)
    if "fail" in sys.argv:
        raise ValueError("bad")
    if "exit" in sys.argv:
        sys.exit(3)
    """
FIRST = "> {file}(1)<module>()\n-> import sys\n(Pdb) "
TYPED = (
    "PYTHONPATH=:/pai_data/debug DEBUG_PORT_NAME=debug DEBUG_TIMEOUT=600 "
    "python -m paipdb user_python_script.py"
)


class Nc:
    """A client at pdb's port, as nc is one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.text = ""

    async def until(self, end: str) -> str:
        """The text up to and with `end`, after what was returned last."""
        async with asyncio.timeout(PATIENCE_S):
            while end not in self.text:
                data = await self._reader.read(65536)
                assert data, f"hung up before {end!r}: {self.text!r}"
                self.text += data.decode()
        at = self.text.index(end) + len(end)
        found, self.text = self.text[:at], self.text[at:]
        return found

    async def rest(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                self.text += (await self._reader.read()).decode()
        return self.text

    def type(self, text: str) -> None:
        self._writer.write(text.encode())

    def end(self) -> None:
        """Ctrl-D in `nc -N`."""
        self._writer.write_eof()


@asynccontextmanager
async def nc(port: int) -> AsyncIterator[Nc]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Nc(reader, writer)
    finally:
        writer.close()


async def pdb(project: Project, port: int, *words: str) -> Terminal:
    """`tk pdb --port PORT WORDS`, once it waits for a client."""
    terminal = await project.terminal("pdb", "--port", str(port), *words)
    await terminal.line(rf"nc 127\.0\.0\.1 {port}")
    return terminal


async def test_the_walk_of_the_seed(project: Project) -> None:
    project.write("user_python_script.py", SCRIPT)
    await project.up("node1")
    port, first = free_port(), FIRST.format(file=project.remote("user_python_script.py"))
    ports = processes.listening_ports({one.pid for one in project.cluster_processes()})
    terminal = await pdb(project, port, *TYPED.split(), "args", "é")
    assert "paipdb opens a port of the node" in terminal.text
    async with nc(port) as client:
        assert await client.until("(Pdb) ") == first
        # One paste, with the line ends of telnet; nothing of it is lost.
        client.type("n\r\np 'ü', 6 * 7\r\nc\r\nMe\r\n")
        text = await client.until("The program finished and will be restarted\n")
        assert "begun ['args', 'é']\n" in text and "('ü', 42)\n" in text and "name? " in text
        assert "hello Me\n" in text and "to the log" not in text
        assert await client.until("(Pdb) ") == first
        await terminal.line("^to the log$")
        # Nothing listens on the node for it.
        there = processes.listening_ports({one.pid for one in project.cluster_processes()})
        assert set(there) == set(ports)
        async with nc(port) as second:
            assert "another client" in await second.rest()
        client.type("q\n")
        assert await terminal.ended() == 0


async def test_how_programs_end(project: Project) -> None:
    project.write("user_python_script.py", SCRIPT)
    await project.up("node1")
    words, port = ("env", "LC_ALL=C", "python", "user_python_script.py"), free_port()
    first = FIRST.format(file=project.remote("user_python_script.py"))
    terminal = await pdb(project, port, *words, "fail")
    async with nc(port) as client:
        client.type("c\né\n")
        text = await client.until("Uncaught exception. Entering post mortem debugging\n")
        assert "hello é\n" in text
        assert (await client.until("restart the program\n")).startswith("Running 'cont' or 'step'")
        raises = line_of(SCRIPT, "raise")
        assert f"user_python_script.py({raises})<module>()" in await client.until("(Pdb) ")
        await terminal.line("^ValueError: bad$")
        client.type("p name\nc\n")
        assert (await client.until("\n")) == "'é'\n"
        text = await client.until("(Pdb) Post mortem debugger finished. ")
        assert await client.until("\n") == "The user_python_script.py will be restarted\n"
        assert await client.until("(Pdb) ") == first
        # The end of the client's text is the program's.
        client.end()
        await terminal.line("the client has left")
        assert await terminal.ended() == 0
        await client.rest()
    terminal = await pdb(project, port, *words, "exit")
    async with nc(port) as client:
        client.type("c\nMe\n")
        await client.until("The program exited via sys.exit(). Exit status: 3\n")
        assert await client.until("(Pdb) ") == first
        terminal.interrupt()
        assert await terminal.ended() == 130
        await client.rest()
    assert not await python_processes(project)


async def python_processes(project: Project) -> list[str]:
    """The programs of this project that still run on the node."""
    found = [one for one in project.cluster_processes() if "user_python_script.py" in one.argv]
    return [str(one) for one in found]


async def test_breakpoints_in_the_code(project: Project) -> None:
    source = """\
        import threading

        def work(number):
            import paipdb; paipdb.settrace(port=5678)
            return number

        breakpoint()
        thread = threading.Thread(target=work, args=(7,))
        thread.start(); thread.join()
        """
    project.write("user_python_script.py", source)
    await project.up("node1")
    port = free_port()
    words = "PYTHONPATH=:/pai_data/debug DEBUG_TIMEOUT=600 python3 user_python_script.py args"
    terminal = await pdb(project, port, *words.split())
    async with nc(port) as client:
        await client.until("(Pdb) ")
        client.type("c\n")
        assert "-> thread = threading" in await client.until("(Pdb) ")
        client.type("c\n")
        assert "work()\n-> return number" in await client.until("(Pdb) ")
        client.type("p number\nc\n")
        assert await client.until("\n") == "7\n"
        await client.until("The program finished and will be restarted\n")
        client.type("q\n")
        assert await terminal.ended() == 0


async def test_nobody_comes(project: Project) -> None:
    project.write("user_python_script.py", SCRIPT)
    await project.up("node1")
    port = free_port()
    words = ("DEBUG_TIMEOUT=1", "python", "-m", "paipdb", "user_python_script.py")
    done = await project.tk("pdb", "--port", str(port), *words, code=1)
    assert done.out == "No client connect to server in 1 seconds, exit\n"
    assert not await python_processes(project)
    done = await project.tk("pdb", "--port", str(port), "nowhere.py", code=None)
    assert done.code == 10 and "nowhere.py: not found on node1" in done.err
    done = await project.tk("pdb", "--port", str(port), "torchrun", "x.py", code=2)
    assert "starts ranks" in done.err


async def test_a_web_page_and_a_probe_are_no_clients(project: Project) -> None:
    project.write("user_python_script.py", SCRIPT)
    await project.up("node1")
    port, mark = free_port(), project.base / "reached"
    terminal = await pdb(project, port, "user_python_script.py")
    for opening in ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\n"):
        async with nc(port) as page:
            page.type(f"{opening}open({str(mark)!r}, 'w')\r\n")
            assert "[tk] this port speaks pdb's plain text" in await page.rest()
        await terminal.line("was refused")
    async with nc(port) as scanner:
        await scanner.until("(Pdb) ")
    await terminal.line("left without a line")
    async with nc(port) as client:
        assert await client.until("(Pdb) ") == FIRST.format(
            file=project.remote("user_python_script.py")
        )
        client.type("q\n")
        assert await terminal.ended() == 0
    assert not mark.exists()
