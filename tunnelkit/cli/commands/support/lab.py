"""`tk lab`: a cluster on this machine, for trying things out and for the tests."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from tunnelkit.cli.completion.options import lab_scheduler_option

app = typer.Typer(
    help="A cluster on this machine: real sshd and Slurm, run by you.",
    no_args_is_help=True,
)

DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="The lab's directory (default: TK_LAB_DIR, or one in your runtime directory).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
LinkOption = Annotated[
    bool, typer.Option("--link", help="Take the network interface itself down (netns only).")
]
KubeOption = Annotated[bool, typer.Option("--kube", help="Of the cluster with pods.")]


@app.command()
def up(
    netns: Annotated[
        bool,
        typer.Option(
            "--netns", help="Hosts in network namespaces: nodes are truly unreachable (root)."
        ),
    ] = False,
    rtt: Annotated[
        float, typer.Option("--rtt", metavar="MS", help="Round-trip time to login, milliseconds.")
    ] = 0.0,
    scheduler: Annotated[str, lab_scheduler_option()] = "auto",
    cpus: Annotated[
        int | None,
        typer.Option("--cpus", metavar="N", help="CPUs that Slurm counts on each node (4)."),
    ] = None,
    memory_limits: Annotated[
        bool,
        typer.Option("--memory-limits", help="Slurm kills a job that uses more than its --mem."),
    ] = False,
    kube: Annotated[
        bool, typer.Option("--kube", help="A stand-in for Kubernetes, with pods of processes.")
    ] = False,
    dir: DirOption = None,
) -> None:
    """Start the cluster and write the profile `lab`.

    tk lab up
    tk lab up --rtt 60 --cpus 32
    tk lab up --kube
    """
    if kube:
        _kube_up(dir)
        return
    from tunnelkit import lab

    found = lab.up(
        dir,
        flavour="netns" if netns else "loopback",
        scheduler=scheduler,
        rtt_ms=rtt,
        cpus=cpus,
        memory_limits=memory_limits,
        progress=lambda text: typer.echo(f"lab: {text}", err=True),
    )
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    enter = f"{shlex.join(found.enter)} " if found.enter else ""
    typer.echo(f"scheduler  {found.scheduler}")
    typer.echo(f"profile    {found.profile}")
    typer.echo(f"try        {enter}ssh -F {found.ssh_config} {found.nodes[0]}")
    typer.echo('next       eval "$(tk lab env)", and in a directory with your Python files:')
    typer.echo(
        "           tk init --profile lab; tk up node1 --gpus 1 --cpus 2; tk loop python FILE"
    )


def _kube_up(dir: Path | None) -> None:
    from tunnelkit.lab.kube import detached

    cluster = detached.up(dir)
    typer.echo(f"pods       {', '.join(detached.PODS)}")
    typer.echo(f"try        kubectl --kubeconfig {cluster.kubeconfig} get pods")
    typer.echo('next       eval "$(tk lab env --kube)", and in a directory with your Python files:')
    typer.echo(f"           tk init --kube; tk up {detached.PODS[0]}; tk loop python FILE")


@app.command()
def down(dir: DirOption = None) -> None:
    """Stop the cluster: jobs, daemons and files go. Nothing happens if there is none.

    tk lab down
    """
    from tunnelkit import lab
    from tunnelkit.lab.kube import detached

    detached.down(dir)
    lab.down(dir)


@app.command()
def status(as_json: JsonOption = False, kube: KubeOption = False, dir: DirOption = None) -> None:
    """Show daemons, nodes and link. Exit code 1 if something of it is not well.

    tk lab status
    tk lab status --json
    tk lab status --kube
    """
    if kube:
        _kube_status(dir, as_json=as_json)
        return
    from tunnelkit import lab

    found = lab.status(dir)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
    else:
        typer.echo(f"lab        {found.info.dir} ({found.info.flavour})")
        typer.echo(f"link       {found.link}, round trip {found.rtt_ms:g} ms")
        for daemon in found.daemons:
            typer.echo(f"{'alive' if daemon.alive else 'DEAD':<10} {daemon.name} ({daemon.pid})")
        for node, state in found.nodes.items():
            typer.echo(f"{state:<10} {node}")
    if not found.healthy:
        raise typer.Exit(1)


def _kube_status(dir: Path | None, *, as_json: bool) -> None:
    from tunnelkit.lab.kube import detached

    phases = detached.phases(dir)
    if as_json:
        typer.echo(json.dumps({"pods": phases}, indent=1))
    else:
        typer.echo(f"lab        {detached.kube_dir(dir)} (kube)")
        for name, phase in phases.items():
            typer.echo(f"{phase:<10} {name}")


@app.command()
def env(kube: KubeOption = False, dir: DirOption = None) -> None:
    """Print what a shell needs to use the lab.

    eval "$(tk lab env)"
    """
    from tunnelkit import lab

    if kube:
        from tunnelkit.lab.kube import detached

        values = {"KUBECONFIG": str(detached.running(dir).kubeconfig)}
    else:
        found = lab.info(dir)
        values = {
            "TK_PROFILE": "lab",
            "TK_LAB_SSH_CONFIG": str(found.ssh_config),
            "TK_LAB_DIR": str(found.dir),
        }
    if config_dir := os.environ.get("TK_CONFIG_DIR"):
        values["TK_CONFIG_DIR"] = config_dir
    for name, value in values.items():
        typer.echo(f"export {name}={shlex.quote(value)}")


@app.command()
def cut(
    reset: Annotated[
        bool, typer.Option("--reset", help="Reset connections instead of swallowing bytes.")
    ] = False,
    link: LinkOption = False,
    dir: DirOption = None,
) -> None:
    """Cut the way from laptop to login: bytes vanish, connections hang.

    tk lab cut
    tk lab cut --reset
    tk lab cut --link
    """
    from tunnelkit import lab

    if link and reset:
        raise typer.BadParameter("--link and --reset are different faults: give one")
    if link:
        lab.link_down(dir)
    elif reset:
        lab.reset(dir)
    else:
        lab.cut(dir)


@app.command()
def heal(dir: DirOption = None) -> None:
    """Undo `cut`, of every kind.

    tk lab heal
    """
    from tunnelkit import lab

    lab.heal(dir)


@app.command()
def rtt(
    ms: Annotated[float, typer.Argument(metavar="MS", help="Milliseconds, 0 to 10000.")],
    dir: DirOption = None,
) -> None:
    """Set the round-trip time to login, for live connections too.

    tk lab rtt 150
    """
    from tunnelkit import lab

    lab.set_rtt(ms, dir)
