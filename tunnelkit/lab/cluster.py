"""Start, end and status of a lab."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tunnelkit.errors import MissingProgram, TunnelkitError, UsageError
from tunnelkit.lab import environment, layout, network, programs, proxy, slurm, ssh, wait_ready
from tunnelkit.lab.layout import LOGIN, NODES, TAG, DaemonStatus, LabInfo, LabStatus, Layout
from tunnelkit.lab.processes import ProcessId, end_all, lab_processes
from tunnelkit.lab.state import PROXY, SUPERVISOR, LabDaemon, State, load, require
from tunnelkit.mount_points import mount_points

Progress = Callable[[str], None]
#: Attempts to choose ports: between choice and use another program may take one.
_PLANS = 4


def _silent(_text: str) -> None:
    pass


def up(
    dir: Path | None = None,
    *,
    flavour: str = "loopback",
    scheduler: str = "auto",
    rtt_ms: float = 0.0,
    cpus: int | None = None,
    memory_limits: bool = False,
    progress: Progress = _silent,
) -> LabInfo:
    """Bring up a lab and return once ssh reaches every node and sinfo calls all idle.

    flavour: loopback, or netns (root). scheduler: slurm, none, or auto (slurm where it is
    installed). cpus: of each node, as Slurm counts them, None for 4 or as many as there are.
    memory_limits: Slurm kills a job that uses more memory than it asked for.
    A healthy lab of that kind already there is left as it is, but for `rtt_ms`;
    any other lab in that directory is taken down first. On failure nothing is left behind.
    Raises UsageError, MissingProgram, SchedulerError, ConnectionFailed, TunnelkitError.
    """
    if flavour not in ("loopback", "netns") or scheduler not in ("auto", "slurm", "none"):
        raise UsageError(
            f"there is no lab with flavour {flavour!r}, scheduler {scheduler!r}",
            hint="flavour is loopback or netns, scheduler auto, slurm or none",
        )
    if cpus is not None and not 1 <= cpus <= layout.MOST_CPUS:
        raise UsageError(
            f"a node of the lab can't have {cpus} CPUs", hint=f"choose 1 to {layout.MOST_CPUS}"
        )
    rtt_ms = proxy.parse_rtt_ms(str(rtt_ms))
    found = Layout(layout.resolve_dir(dir))
    _refuse_inside(found)
    if load(found):
        with _locked(found.dir):  # waits for an `up` or `down` under way
            existing = load(found)
            if existing and _is_as_wanted(existing, flavour, scheduler, cpus, memory_limits):
                proxy.tell(found.proxy_socket, f"rtt {rtt_ms}")
                return existing.info
            if existing:
                progress("taking down what an earlier lab left")
                _take_down(existing)
    with_slurm, notes = _choose_scheduler(scheduler)
    for left in reversed(range(_PLANS)):
        plan = network.netns(found.dir) if flavour == "netns" else network.loopback()
        try:
            planned = _plan(found, plan, with_slurm, notes, cpus, memory_limits)
            return _new(planned, rtt_ms, progress)
        except _PortTaken as taken:
            if not left:
                raise taken.error from None
            progress("another program took one of the ports: trying others")
    raise AssertionError("unreachable")


class _PortTaken(Exception):
    """A daemon could not listen: its port was free when the lab chose it, and was taken since."""

    def __init__(self, error: TunnelkitError) -> None:
        super().__init__(str(error))
        self.error = error


def _new(state: State, rtt_ms: float, progress: Progress) -> LabInfo:
    """Bring up a lab in an empty directory; on failure remove all of it. Raises _PortTaken, too."""
    found = state.layout
    layout.claim_dir(found.dir)
    with _locked(found.dir):
        if load(found):
            raise UsageError(f"another `tk lab up` was faster in {found.dir}", hint="run it again")
        taken: _PortTaken | None = None
        try:
            return _bring_up(state, rtt_ms, progress)
        except BaseException as error:
            if isinstance(error, TunnelkitError) and wait_ready.port_taken(found):
                taken = _PortTaken(error)
            _take_down(load(found) or state)
            if taken is None:
                raise
        raise taken


def _choose_scheduler(wanted: str) -> tuple[bool, list[str]]:
    """Return True to run Slurm, and a note for the user."""
    programs.find_program("sshd")
    programs.find_program("ssh")
    if wanted == "none":
        return False, []
    lacking = programs.missing(programs.SLURM_PROGRAMS)
    if not lacking:
        return True, []
    install = "apt-get install " + " ".join(programs.packages(lacking))
    if wanted == "slurm":
        raise MissingProgram(f"the lab's Slurm needs {', '.join(lacking)}", hint=install)
    return False, [f"No Slurm here (missing: {', '.join(lacking)}), so scheduler = none; {install}"]


def _plan(
    found: Layout,
    plan: network.Network,
    with_slurm: bool,
    said: Sequence[str],
    cpus: int | None,
    memory_limits: bool,
) -> State:
    notes = list(said)
    if not plan.namespaces:
        notes.append(
            "On loopback nothing stops this machine from dialling a node directly; "
            "--netns (root) closes that way."
        )
    if not plan.own_names:
        notes.append(
            "All hosts share this machine's host name; SLURMD_NODENAME and TK_LAB_HOST tell them "
            "apart."
        )
    if not ssh.has_terminals():
        notes.append(
            "This machine mounts /dev/pts without gid=5, so an ordinary user's sshd can't give out "
            "terminals: `ssh -t` is closed, commands without a terminal work."
        )
    if with_slurm and not plan.slurm_bound:
        notes.append(
            "This machine's name does not mean 127.0.0.1, so Slurm's ports listen on every "
            "address, guarded by munge with a key of this lab's own."
        )
    info = LabInfo(
        dir=found.dir,
        flavour="netns" if plan.namespaces else "loopback",
        scheduler="slurm" if with_slurm else "none",
        ssh_config=found.ssh_config,
        profile=layout.profile_path(),
        home=found.home,
        nodes=NODES,
        enter=plan.enter_namespace("laptop"),
        notes=tuple(notes),
        cpus=cpus or layout.CPUS,
        memory_limits=memory_limits,
    )
    return State(info=info, network=plan, daemons={})


def _bring_up(state: State, rtt_ms: float, progress: Progress) -> LabInfo:
    found, with_slurm = state.layout, state.info.scheduler == "slurm"
    state.save()
    found.make()
    layout.write_private(found.hosts, state.network.hosts_text(), mode=0o644)
    environment.write_home(found)
    if state.network.namespaces:
        progress("network namespaces: laptop, login, node1, node2")
        network.make_namespaces(state.network)
    progress("keys and configuration")
    ssh.write_files(found, state.network, slurm=with_slurm)
    state = replace(state, made_privsep_dir=ssh.make_privsep_dir())
    state = state.start_supervisor()
    progress("sshd on login, node1 and node2")
    for daemon in _ssh_daemons(state):
        state = state.start(daemon)
    if with_slurm:
        progress("munged, slurmctld and a slurmd on each node")
        state = _start_slurm(state)
    wait_ready.wait_ssh(state)
    if with_slurm:
        wait_ready.wait_slurm(state)
    proxy.tell(found.proxy_socket, f"rtt {rtt_ms}")
    layout.write_profile(state.info)
    progress("ready")
    return state.info


def _ssh_daemons(state: State) -> list[LabDaemon]:
    plan, found = state.network, state.layout
    inside = "127.0.0.1" if plan.namespaces else plan.address[LOGIN]
    words = programs.own_program("tunnelkit.lab.proxy")
    words += ["--listen", f"{plan.proxy[0]}:{plan.proxy[1]}"]
    words += ["--upstream", f"{inside}:{plan.ssh_port[LOGIN]}"]
    words += ["--control", str(found.proxy_socket)]
    sshds = [
        LabDaemon(f"sshd-{host}", host, tuple(ssh.sshd_argv(found, host))) for host in layout.HOSTS
    ]
    return [LabDaemon(PROXY, LOGIN, tuple(words)), *sshds]


def _start_slurm(state: State) -> State:
    found = state.layout
    task_env = {node: environment.host_environment(found, node, slurm=True) for node in NODES}
    slurm.write_files(found, state.network, task_env, state.info)
    for name, host, argv in slurm.daemons(found):
        state = state.start(LabDaemon(name, host, tuple(argv)))
        if name == "munged":
            wait_ready.wait_for_file(state, found.munge_socket, name)
    return state


def _is_as_wanted(
    state: State, flavour: str, scheduler: str, cpus: int | None, memory_limits: bool
) -> bool:
    info = state.info
    if info.flavour != flavour or scheduler not in ("auto", info.scheduler):
        return False
    if cpus not in (None, info.cpus) or info.memory_limits != memory_limits:
        return False
    return _status(state).healthy and info.profile == layout.profile_path()


def info(dir: Path | None = None) -> LabInfo:
    """Return the lab in that directory. Raises UsageError if there is none."""
    return require(Layout(layout.resolve_dir(dir))).info


def on(host: str, dir: Path | None = None) -> tuple[str, ...]:
    """Return an argv prefix that runs a program as on `host` (login, node1, node2), without ssh."""
    if host not in layout.HOSTS:
        raise UsageError(f"the lab has no host {host!r}", hint=f"it has {', '.join(layout.HOSTS)}")
    return require(Layout(layout.resolve_dir(dir))).on(host)


def status(dir: Path | None = None) -> LabStatus:
    """Return the state of daemons, nodes and link. Raises UsageError if there is no lab."""
    return _status(require(Layout(layout.resolve_dir(dir))))


def _status(state: State) -> LabStatus:
    found = state.layout
    daemons = tuple(
        DaemonStatus(d.name, d.process.pid if d.process else 0, d.alive, found.log(d.name))
        for d in state.daemons.values()
    )
    nodes = slurm.node_states(state.on(LOGIN)) if state.info.scheduler == "slurm" else {}
    try:
        link = proxy.tell(found.proxy_socket, "status")
    except TunnelkitError:
        link = {"link": "unknown", "rtt_ms": 0.0}
    rtt_ms = link["rtt_ms"]
    assert isinstance(rtt_ms, float)
    return LabStatus(state.info, daemons, nodes, str(link["link"]), rtt_ms)


def down(dir: Path | None = None) -> None:
    """Take the lab down: jobs, processes, mounts, namespaces, profile, files. Idempotent.

    Raises TimeoutExpired if a process can't be ended (files then stay, for a second try).
    """
    found = Layout(layout.resolve_dir(dir))
    _refuse_inside(found)
    if not found.dir.is_dir():
        # Its directory may have been cleaned away under it.
        end_all(lambda: lab_processes(str(found.dir), ()), grace_s=1.0)
        layout.remove_profile(layout.profile_path(), found.dir)
        return
    with _locked(found.dir):
        state = load(found)
        if state:
            _take_down(state)
        elif found.dir.is_dir() and any(found.dir.iterdir()):
            raise UsageError(
                f"{found.dir} is not a lab's directory",
                hint="name the lab's with --dir or TK_LAB_DIR",
            )


def _take_down(state: State) -> None:
    found = state.layout
    controller = state.daemons.get("slurmctld")
    if controller and controller.alive:
        slurm.cancel_all_jobs(state.on(LOGIN))
    supervisor = state.daemons.get(SUPERVISOR)
    last = {supervisor.process} if supervisor and supervisor.process else set[ProcessId | None]()

    def remaining() -> set[ProcessId]:
        return lab_processes(str(found.dir), state.processes)

    # The supervisor goes last: below it orphans stay findable.
    end_all(lambda: remaining() - last, grace_s=1.0)
    end_all(remaining, grace_s=1.0)
    network.remove_namespaces(state.network)
    if state.made_privsep_dir:
        ssh.remove_privsep_dir()
    layout.remove_profile(state.info.profile, found.dir)
    _unmount_below(found.dir)
    # Last: while it stands, `down` can be run again.
    for path in found.dir.iterdir():
        if path != found.state:
            _remove(path)
    found.state.unlink(missing_ok=True)
    found.dir.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _unmount_below(directory: Path) -> None:
    """Unmount what is mounted inside, so that removing files never reaches into a mount."""
    points = [os.fsdecode(mount.path) for mount in mount_points()]
    for point in sorted((p for p in points if p.startswith(f"{directory}/")), reverse=True):
        argvs = [["fusermount3", "-u", "-z", point], ["umount", "-l", point]]
        if not any(wait_ready.failure(argv) is None for argv in argvs if shutil.which(argv[0])):
            raise TunnelkitError(f"{point} can't be unmounted", hint="unmount it and run it again")


def _refuse_inside(found: Layout) -> None:
    if os.environ.get(TAG) == str(found.dir):
        raise UsageError(
            "this shell is on one of the lab's own hosts",
            hint="run `tk lab` on the laptop's side",
        )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory against other `up` and `down`; waits for them."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
