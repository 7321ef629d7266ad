"""`tk config`: every setting, and where it came from."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunnelkit.cli.completion import sources

if TYPE_CHECKING:
    from tunnelkit.config.schema import Origin, Settings

app = typer.Typer(help="Show the configuration and where each value comes from.")

_PROFILE = typer.Option(
    "--profile",
    metavar="NAME",
    help="Cluster profile to use.",
    autocompletion=sources.profiles,
)


@app.command()
def show(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    profile: Annotated[str | None, _PROFILE] = None,
) -> None:
    """Print each value and where it came from.

    Later wins: default, profile, tunnelkit.toml, environment (TK_CLUSTER_LOGIN ...), flags.

    tk config show
    tk config show --json | jq '.values["cluster.login"]'
    """
    settings = _load(profile)
    if as_json:
        typer.echo(json.dumps(_as_object(settings), indent=2))
        return
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in _table(settings, color=color):
        typer.echo(line, color=color)


@app.command()
def path(profile: Annotated[str | None, _PROFILE] = None) -> None:
    """Print the files that the configuration is read from.

    tk config path
    """
    from tunnelkit.config import profiles

    settings = _load(profile)
    own, shipped = profiles.directories()
    project = settings.config_file or f"none above {settings.project_dir}; `tk init` writes one"
    chosen: Path | str = "none chosen"
    if settings.profile is not None:
        chosen = profiles.find(settings.profile, chosen_by=str(settings.origins["profile"]))
    typer.echo(f"project           {project}")
    typer.echo(f"profile           {chosen}")
    typer.echo(f"own profiles      {own}")
    typer.echo(f"shipped profiles  {shipped}")


def _load(profile: str | None) -> Settings:
    from tunnelkit.config.load import load

    return load(Path.cwd(), overrides={"profile": profile})


def _as_object(settings: Settings) -> dict[str, object]:
    from tunnelkit.config.schema import KEYS

    values = {}
    for name in KEYS:
        origin = settings.origins[name]
        values[name] = {
            "value": settings.written(name),
            "origin": origin.kind,
            "where": origin.where or None,
            "line": origin.line,
        }
    return {
        "project_dir": str(settings.project_dir),
        "config_file": None if settings.config_file is None else str(settings.config_file),
        "values": values,
    }


def _table(settings: Settings, *, color: bool) -> list[str]:
    """Aligned columns: key, value as one would write it, origin."""
    from tunnelkit.config.schema import KEYS
    from tunnelkit.config.toml_source import dump

    rows = []
    for name in KEYS:
        written = settings.written(name)
        value = "-" if written is None else dump(written)
        rows.append((name, value, _origin_text(settings.origins[name])))
    key_width = max(len(key) for key, _, _ in rows)
    value_width = min(40, max(len(value) for _, value, _ in rows))
    lines = []
    for key, value, origin in rows:
        shown = typer.style(origin, dim=True) if color else origin
        lines.append(f"{key:<{key_width}}  {value:<{value_width}}  {shown}")
    return lines


def _origin_text(origin: Origin) -> str:
    """Return the origin for users: a file with `~`, after the name of its layer."""
    text = str(origin)
    home = str(Path.home())
    if origin.kind in ("profile", "project") and text.startswith(home + "/"):
        text = "~" + text[len(home) :]
    return f"profile {text}" if origin.kind == "profile" else text
