"""A program that speaks for its debugger: what it says by itself starts nothing on the laptop."""

from __future__ import annotations

import pytest

from tests.support.tkrig import Project, line_of

PROGRAM = """\
    from _pydevd_bundle.pydevd_constants import get_global_debugger
    from _pydevd_bundle.pydevd_net_command import NetCommand

    def say(name, body):
        event = {"type": "event", "event": name, "seq": 0, "body": body}
        get_global_debugger().writer.add_command(NetCommand(200, 0, event, is_json=True))

    evil = {"type": "debugpy", "request": "launch", "name": "x", "python": ["/bin/sh", "-c", "id"]}
    say("debugpyAttach", evil)
    say("debugpyAttach", {**evil, "subProcessId": 7})
    say("ptvsd_attach", evil)
    say("evil.command", {"command": "workbench.action.terminal.new"})
    say("thread", {"reason": "started", "threadId": 4711})
    print("said", flush=True)
    """
STOP = line_of(PROGRAM, 'print("said"')


@pytest.mark.usefixtures("slurm_lab")
async def test_no_configuration_of_its_own_reaches_the_editor(project: Project) -> None:
    project.write("2.py", PROGRAM)
    await project.up("node1")
    terminal = await project.loop("python", "2.py")
    await project.ready()
    editor, thread, _ = await project.f5_to_stop(STOP)
    # All came before: this event of DAP's own is the last of them.
    while not any((one.get("body") or {}).get("threadId") == 4711 for one in editor.events):
        await editor.wait_event("thread")
    children = [one["body"] for one in editor.events if one["event"] == "debugpyAttach"]
    assert not [one for one in editor.events if one["event"] in ("ptvsd_attach", "evil.command")]
    (child,) = children  # the one that names a process, with the editor's own arguments
    assert (child["request"], child["subProcessId"]) == ("attach", 7)
    assert not {"python", "program", "console"} & child.keys()
    assert child["connect"]["host"] == "127.0.0.1"
    assert child["pathMappings"] == project.path_mappings
    await editor.finish(thread)
    await terminal.line(r"run 1 · ended: exit code 0")
