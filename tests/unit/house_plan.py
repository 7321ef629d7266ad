"""The plan of the package: what each room is for and may import, the order of its folders.

`python -m tests.unit.house_plan` writes the table of rooms into ARCHITECTURE.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: written by tests/unit/house_plan.py -->", "<!-- end of rooms -->"


class Room(NamedTuple):
    """purpose: for ARCHITECTURE.md. may_import: rooms and modules at the top of the package, by
    name; exactly those that it uses."""

    purpose: str
    may_import: frozenset[str]


def _room(purpose: str, may_import: str = "") -> Room:
    return Room(purpose, frozenset(may_import.split()))


ROOMS = {
    "cli": _room(
        "parse, call, render; a command's module is imported only when it runs",
        "config debug demo diagnosis errors file_changes lab link mirror model mount mux scheduler "
        "session simulate text_format",
    ),
    "demo": _room("`tk demo`, and a small DAP client", "errors lab mux session"),
    "lab": _room(
        "a real cluster on loopback or in network namespaces; a stand-in for Kubernetes",
        "errors mount_points",
    ),
    "session": _room(
        "the life of one `tk up`: daemon, control socket, states; joins the rooms below",
        "agent_zip child_process cluster_dir config debug diagnosis errors keeper link local_ports "
        "machine messages mirror model mount mux pod probe_zip remote_command remote_script "
        "scheduler script_check_zip simulate text_format wire",
    ),
    "link": _room(
        "opens byte streams to hosts over ssh, or to pods; each kind stands behind `link/base.py`",
        "child_process config errors local_ports model mux remote_command",
    ),
    "scheduler": _room(
        "Slurm, PBS and Torque: builds argv, parses text; one poller; the job's script",
        "cluster_dir diagnosis errors model",
    ),
    "mirror": _room(
        "watches, scans and sends files; the barrier and its proof",
        "errors machine model mount_points mux remote_command remote_script text_format",
    ),
    "mount": _room(
        "sshfs: the remote directory on the laptop", "errors model mount_points remote_script"
    ),
    "debug": _room(
        "the laptop's side of a loop: adapters, editor port, DAP sessions, VS Code's files",
        "debuggee errors file_changes messages model mount_points mux text_format",
    ),
    "config": _room(
        "tunnelkit.toml, profiles, environment, flags; each value knows its origin",
        "errors model text_format",
    ),
    "agent": _room(
        "runs on the node: restart loops, processes, dial-in ports, the mirror's far end",
        "debuggee messages mux wire",
    ),
    "debuggee": _room(
        "runs in the user's own interpreter: debugpy's start, fork server, rank hook"
    ),
    "mux": _room("the asyncio driver of the wire: channels, calls, splices", "wire"),
    "wire": _room("the protocol, sans-IO: no socket, no clock, no asyncio"),
    "messages": _room(
        "types of what session and agent send one another; the agent only checks types with it",
        "errors",
    ),
    "keeper": _room("runs in a user's job as his script's parent, and keeps the job if it fails"),
    "pod": _room("runs in a pod: finds a place for the agent, and brings it there"),
    "probe": _room("runs in a job beside the program: samples it, and keeps a black box"),
    "script_check": _room("runs on the login host: looks at what a batch script needs"),
    "simulate": _room(
        "a batch script, checked from its text and the login host's answers, and run here",
        "diagnosis errors model scheduler text_format",
    ),
    "script_check_zip": _room("packs script_check into one file", "agent_zip"),
    "probe_zip": _room("packs the probe into one file", "agent_zip"),
    "agent_zip": _room("packs agent, debuggee, mux and wire into one file"),
    "child_process": _room("child processes with one owner and an explicit end", "errors model"),
    "cluster_dir": _room("shell code that finds tk's directory on the cluster"),
    "remote_script": _room("runs a small sh script on a host", "errors model"),
    "remote_command": _room("a command line whose words survive any login shell", "errors"),
    "mount_points": _room("the mounts of this computer"),
    "machine": _room("the identity of this computer"),
    "local_ports": _room("is a local port free, and who has it if not", "errors"),
    "file_changes": _room(
        "changes to a user's files, planned first, written at once", "errors text_format"
    ),
    "text_format": _room("sizes and untrusted text for people"),
    "diagnosis": _room(
        "why a job waits, is slow or failed: evidence in, verdicts out; pure", "model"
    ),
    "model": _room("the nouns: hosts, nodes, jobs, commands", "errors"),
    "errors": _room("errors and exit codes"),
}

#: These never import one another.
SIDE_BY_SIDE = frozenset({"link", "scheduler", "mirror", "debug"})
#: What is sent to the node: Python 3.8, standard library only.
PAYLOAD = ("wire", "mux", "debuggee", "agent", "probe", "keeper", "script_check", "pod")

#: room -> its folders and modules in order: each imports only from layers before its own.
FOLDERS = {
    "cli": (
        "registry lazy_typer command_groups terminal",
        "app views logs fast_path",
        "completion",
        "commands main",
    ),
    "session": (
        "runtime",
        "job debugging",
        "agent",
        "doctor forwards",
        "backends",
        "connection",
        "allocation files local_loop",
        "why submit",
        "top simulate",
        "agents job_monitor cleanup report host logs",
        "comeback",
        "session",
        "handlers",
        "daemon",
    ),
    "link": ("base options", "shared", "openssh paramiko_link kube", "factory"),
    "scheduler": (
        "sections inspector batch_scripts shell_text",
        "base command_error nodelist script_options",
        "box_section quotas",
        "rooms",
        "job_script detect poller",
        "names",
        "slurm pbs kube",
        "factory",
        "first_question",
    ),
    "mirror": (
        "api",
        "tree",
        "record watch progress",
        "remote",
        "context explain same_moment transfer",
        "agent pull_rounds",
        "pull",
        "passes",
        "proof push_worker",
        "mirror",
    ),
    "simulate": (
        "finding shell_lines output_paths stand_ins",
        "script_steps text_checks",
        "environment_checks",
        "cluster_checks runners",
        "run plan command_line",
        "judgement",
    ),
    "diagnosis": (
        "verdict evidence sizes",
        "codes black_box storage",
        "verdict_json waiting ended running pods",
        "top",
    ),
    "mount": ("mount_table", "sshfs", "mounts"),
    "debug": (
        "dap",
        "ranks",
        "ranks",
        "console ranks_view",
        "adapter agent_api ahead loop_command rank_set",
        "pdb",
        "shared_debuggee target_identity loop_log loop_status rank_ports vscode",
        "loop_agents",
        "debug_target",
        "generation rank_looks",
        "editor_dispatch interrupt rank_sessions runs",
        "loop",
        "attachment",
    ),
    "agent": (
        "mirror compile_zip",
        "zip_lease",
        "links file_agent",
        "processes",
        "nodes",
        "debug",
        "agent",
        "main",
    ),
}


def table() -> str:
    """The rooms as a table in Markdown."""
    lines = ["| room | what it is for | may import |", "|---|---|---|"]
    for name, room in ROOMS.items():
        place = f"`{name}/`" if (ARCHITECTURE.parent / "tunnelkit" / name).is_dir() else f"`{name}`"
        lines.append(f"| {place} | {room.purpose} | {', '.join(sorted(room.may_import))} |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """A text of ARCHITECTURE.md with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    ARCHITECTURE.write_text(with_table(ARCHITECTURE.read_text()))
