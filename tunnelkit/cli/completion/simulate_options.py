"""The options of `tk simulate`, for its help: it reads its words itself."""

from __future__ import annotations

from tunnelkit.cli.completion import sources
from tunnelkit.cli.completion.options import Declaration
from tunnelkit.cli.lazy_typer import typer


def simulate_words() -> Declaration:
    """Return the argument."""
    return typer.Argument(
        metavar="SCRIPT [ARGS] | -- COMMAND",
        help="A batch script on this computer, or a command.",
    )


def only_check_option() -> Declaration:
    """Return `--only-check`."""
    return typer.Option("--only-check", help="Check on the cluster, and run nothing here.")


def no_check_option() -> Declaration:
    """Return `--no-check`."""
    return typer.Option("--no-check", help="Don't ask the cluster; run it here.")


def force_option() -> Declaration:
    """Return `--force`."""
    return typer.Option("--force", help="Run it here though the check has failed.")


def in_option() -> Declaration:
    """Return `--in`."""
    names = "docker, podman, systemd, cgroup or bare"
    help = f"What holds it to its limits: {names}."
    return typer.Option("--in", metavar="NAME", help=help, autocompletion=sources.runners)


def image_option() -> Declaration:
    """Return `--image`."""
    return typer.Option("--image", metavar="NAME", help="The image for docker or podman.")


def for_option() -> Declaration:
    """Return `--for`."""
    return typer.Option("--for", metavar="TIME", help="Stop it here after so long: 60s, 10m.")


def mem_option() -> Declaration:
    """Return `--mem`."""
    return typer.Option("--mem", metavar="SIZE", help="Memory, instead of the script's.")


def cpus_option() -> Declaration:
    """Return `--cpus`."""
    return typer.Option("--cpus", metavar="N", help="CPUs, instead of the script's.")


def time_option() -> Declaration:
    """Return `--time`."""
    return typer.Option("--time", metavar="TIME", help="Time limit, instead of the script's: 60s.")


def simulate_json_option() -> Declaration:
    """Return `--json`."""
    return typer.Option("--json", help="Print findings and verdict as JSON.")
