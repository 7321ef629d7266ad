"""The agent's command line: `serve NAME [--while-stdin] [--meet FILE]`,
`attach NAME [--start | --wait]`, `relay NAME`, `meet FILE NODE`, `files`, `compile`."""

import os
import signal
import socket
import sys
from typing import List, Optional

_USAGE = (
    "usage: agent serve NAME [--while-stdin] [--meet FILE] | attach NAME [--start | --wait]"
    " | relay NAME | meet FILE NODE | files | compile"
)


def main(argv: List[str]) -> int:
    """Run one command and return its exit status."""
    if len(argv) >= 2 and argv[0] == "serve":
        invitation = argv[argv.index("--meet") + 1] if "--meet" in argv[2:-1] else None
        return _serve(argv[1], invitation, "--while-stdin" in argv[2:])
    if len(argv) >= 2 and argv[0] == "attach":
        # Imported apart: attaching must not pay for asyncio.
        from tunnelkit.agent.links.bridge import attach

        start = _serve_argv(argv[1]) if "--start" in argv[2:] else None
        return attach(argv[1], start, wait="--wait" in argv[2:])
    if len(argv) >= 2 and argv[0] == "relay":
        from tunnelkit.agent.nodes.relay_main import main as relay

        return relay(argv[1])
    if len(argv) == 3 and argv[0] == "meet":
        from tunnelkit.agent.links.reverse_connect import meet

        return meet(argv[1], argv[2])
    if argv == ["files"]:
        from tunnelkit.agent.file_agent import main as files

        return files()
    if argv == ["compile"]:
        from tunnelkit.agent import compile_zip

        compile_zip.write(os.path.abspath(sys.argv[0]))
        return 0
    print(_USAGE, file=sys.stderr)
    return 2


def _serve_argv(name: str) -> List[str]:
    return [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]), "serve", name]


def _serve(name: str, invitation: Optional[str] = None, while_stdin: bool = False) -> int:
    import asyncio

    from tunnelkit.agent.agent import Agent
    from tunnelkit.agent.links import socket_dir
    from tunnelkit.agent.links.bridge import connect
    from tunnelkit.agent.nodes import node_agents
    from tunnelkit.mux.malloc import one_heap

    one_heap()
    directory = socket_dir.make_directory()
    running = connect(name)
    if running is not None:
        running.close()
        print(f"tunnelkit: agent {name} already runs on this node", file=sys.stderr)
        return 3
    path = os.path.join(directory, socket_dir.check_name(name) + ".sock")
    # A signal to end between here and the agent's first moment would leave the socket behind: it
    # waits until the agent handles it.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    listener = _listen(path)

    async def serve() -> None:
        # Comes after `run` has set its handlers: it does that before it first waits.
        asyncio.get_running_loop().call_soon(signal.pthread_sigmask, signal.SIG_UNBLOCK, ends)
        agent = Agent(name, listener, invitation)
        if while_stdin:
            agent.end_with(0)
            print(f"{node_agents.READY}{os.getpid()}", flush=True)
        await agent.run()

    try:
        asyncio.run(serve())
    except BaseException:
        # At its regular end the agent has removed it, and another may have the place by now.
        if os.path.exists(path):
            os.unlink(path)
        raise
    # The log of one that `attach` started (bridge.py) is only of use after a crash.
    log = path[: -len(".sock")] + ".log"
    if os.path.exists(log):
        os.unlink(log)
    return 0


def _listen(path: str) -> socket.socket:
    """A unix socket at `path`, 0600 from its first moment (umask), in our 0700 directory."""
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # For the bind alone: what the user's own processes create keeps their umask.
    umask = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(umask)
    listener.listen(16)
    return listener
