"""Options that several commands share, and long ones, for their annotations.

Functions, since only an app of typer, and `fast_path`, evaluates the annotations.
"""

from __future__ import annotations

from collections.abc import Callable

from tunnelkit.cli.completion import sources
from tunnelkit.cli.lazy_typer import typer

#: An option or argument: of typer, or a `Parameter` where `fast_path` reads it.
Declaration = object


def profile_option() -> Declaration:
    """Return the option `--profile`."""
    return typer.Option(
        "--profile",
        metavar="NAME",
        help="Cluster profile, instead of the project's.",
        autocompletion=sources.profiles,
    )


def base_profile_option() -> Declaration:
    """Return the option `--profile` of `tk init`."""
    return typer.Option(
        metavar="NAME",
        help="Cluster profile to build on, instead of a login host.",
        autocompletion=sources.profiles,
    )


def login_option() -> Declaration:
    """Return the option `--login`."""
    return typer.Option(
        "--login",
        metavar="HOST",
        help="Login host: host, user@host or ssh_config alias.",
        autocompletion=sources.logins,
    )


def loop_id_option() -> Declaration:
    """Return the option `--loop`."""
    return typer.Option(
        "--loop",
        metavar="ID",
        help="Another loop than the newest.",
        autocompletion=sources.loops,
    )


def link_option() -> Declaration:
    """Return the option `--link`."""
    return typer.Option(
        "--link",
        metavar="NAME",
        help="auto, openssh, paramiko; kubectl-proxy, kubectl-exec.",
        autocompletion=sources.links,
    )


def scheduler_option(more: str = ".") -> Declaration:
    """Return the option `--scheduler` of `tk up` and `tk init`. more: the end of its help."""
    return text_option("NAME", f"auto, slurm, pbs, torque or none{more}", sources.schedulers)


def lab_scheduler_option() -> Declaration:
    """Return the option `--scheduler` of `tk lab up` and `tk demo`."""
    return text_option("NAME", "auto, slurm or none.", sources.lab_schedulers)


def node_argument() -> Declaration:
    """Return the node of `tk up`."""
    return typer.Argument(
        metavar="NODE", help="The node to ask for, or the pod.", autocompletion=sources.nodes
    )


def own_node(declare: Callable[..., Declaration]) -> Declaration:
    """Return the node of `tk run` and `tk shell`, as an option or an argument."""
    return declare(
        metavar="NODE", help="Another node of the allocation.", autocompletion=sources.own_nodes
    )


def partition_option() -> Declaration:
    """Return the option `--partition`."""
    return typer.Option(
        metavar="NAME", help="Partition (queue).", autocompletion=sources.partitions
    )


def requeue_option() -> Declaration:
    """Return the option `--requeue`."""
    return typer.Option(
        "--requeue", help="If preempted, back into the queue: the session waits and goes on."
    )


def attach_job_option() -> Declaration:
    """Return the option `--attach-job`."""
    return typer.Option(
        metavar="ID",
        help="Use this running job of yours; tk down does not end it.",
        autocompletion=sources.jobs,
    )


def selector_option() -> Declaration:
    """Return the option `--selector`."""
    return typer.Option(
        "--selector", "-l", metavar="LABELS", help="Kubernetes: all pods with these labels."
    )


def pod_image_option() -> Declaration:
    """Return the option `--image` of `tk up`."""
    return text_option("IMAGE", "Kubernetes: make a pod of this image.")


def queue_option() -> Declaration:
    """Return the option `--queue`."""
    return text_option("NAME", "Kubernetes: a queue of Kueue.")


def manifest_option() -> Declaration:
    """Return the option `--file`."""
    return typer.Option(
        "--file", "-f", metavar="FILE", help="Kubernetes: make the object of this manifest."
    )


def container_option() -> Declaration:
    """Return the option `--container`."""
    return typer.Option(
        "--container", "-c", metavar="NAME", help="Kubernetes: another container than the default."
    )


def job_argument() -> Declaration:
    """Return the job of `tk why` and `tk logs`."""
    return typer.Argument(
        metavar="JOB",
        help="A job of yours, submitted by tk or not.",
        autocompletion=sources.jobs,
    )


def code_option() -> Declaration:
    """Return the option `--explain` of `tk why`."""
    return typer.Option(
        "--explain",
        metavar="CODE",
        help="What a verdict's code means.",
        autocompletion=sources.codes,
    )


def take_over_option() -> Declaration:
    """Return the option `--take-over`."""
    return typer.Option(
        "--take-over", help="Mirror there although another laptop directory does, in its place."
    )


def text_option(metavar: str, help: str, complete: sources.Completer | None = None) -> Declaration:
    """Return an option with a value. complete: offers values."""
    return typer.Option(metavar=metavar, help=help, autocompletion=complete)


def preload_option() -> Declaration:
    """Return the option `--preload`."""
    return typer.Option(
        metavar="MODULES", help="Import these once for every run: torch,numpy. '': none."
    )


def all_pods_option() -> Declaration:
    """Return the options `--all-pods` and `--first-pod`."""
    return typer.Option(
        "--all-pods/--first-pod",
        help="Run it in each pod of the session, or in the first alone (torchrun: in each).",
    )


def standby_option() -> Declaration:
    """Return the switch `--standby`."""
    return typer.Option(
        "--standby/--no-standby",
        help="Keep the next run ready while one runs (default), or save its memory.",
    )


def rank_option() -> Declaration:
    """Return the option `--rank` of `tk loop`."""
    return typer.Option(
        metavar="RANKS",
        help="Debug only these ranks, the others run free: 0,2 or 0-3. 'all': every one, "
        "also of a script that calls a launcher.",
        autocompletion=sources.every,
    )


def post_mortem_option() -> Declaration:
    """Return the switch `--post-mortem`."""
    return typer.Option(
        "--post-mortem/--no-post-mortem",
        help="The program runs on when its editor leaves, and if it then dies of an "
        "exception it is kept there until F5 comes. A rank is kept at any uncaught exception, "
        "for F5 or tk console.",
    )


def confirm_deletes_option() -> Declaration:
    """Return the switch `--confirm-deletes`."""
    return typer.Option(
        "--confirm-deletes",
        "--allow-deletes",
        help="Agree to the many deletions that halted the mirror.",
    )
