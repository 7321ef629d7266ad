"""Options of `tk logs`, for their annotations: see `options`."""

from __future__ import annotations

from tunnelkit.cli.completion.options import Declaration
from tunnelkit.cli.lazy_typer import typer


def follow_option() -> Declaration:
    """Return the switch `--follow`."""
    return typer.Option("-f", "--follow", help="Go on as lines come; a job's until it ends.")


def stderr_option() -> Declaration:
    """Return the switch `--err`."""
    return typer.Option("--err", help="Of a job: stderr's file, if it has one of its own.")


def log_file_option() -> Declaration:
    """Return the option `--file`."""
    return typer.Option(
        "--file", metavar="FILE", help="Of a job: read this file of the login host as its log."
    )


def rank_lines_option() -> Declaration:
    """Return the option `--rank`."""
    return typer.Option("--rank", metavar="R", help="Only this rank's lines: srun -l labels them.")


def last_error_option() -> Declaration:
    """Return the switch `--last-error`."""
    return typer.Option("--last-error", help="Only the traceback of the rank that failed first.")


def last_lines_option() -> Declaration:
    """Return the option `--lines`."""
    return typer.Option(
        "-n", "--lines", metavar="N", help="How many last lines; default: a job's all, else 100."
    )


def log_json_option() -> Declaration:
    """Return the switch `--json`."""
    return typer.Option(
        "--json",
        help="A job: where its log is. --last-error: the traceback. --session: its events.",
    )
