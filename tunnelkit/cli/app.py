"""The command-line app: typer with the commands that are asked for."""

from __future__ import annotations

import typer
from typer.core import TyperCommand

from tunnelkit import __version__
from tunnelkit.cli.command_groups import Commands, NamedArguments, WholeLine
from tunnelkit.cli.registry import COMMANDS, RUN_PROGRAMS, WHOLE_LINES, find

_PROGRAM_FOLLOWS = {"allow_interspersed_args": False, "ignore_unknown_options": True}
_HELP = """Debug on a cluster as if it were your laptop.

    tk init                        set up this project
    tk up node4 --gpus 1 --cpus 2  tunnels, allocation, mirror
    tk loop python 2.py            every F5 gets a fresh debuggee
    tk demo                        see it all on this machine
"""


def build(names: set[str]) -> typer.Typer:
    """Build the app with these commands only; with all of them for help."""
    app = typer.Typer(
        cls=Commands,
        help=with_examples_kept(_HELP),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
    )

    @app.callback()
    def common(
        version: bool = typer.Option(
            False, "--version", "-V", help="Show the version and exit.", callback=_show_version
        ),
        debug: bool = typer.Option(False, "--debug", help="Show tracebacks."),
    ) -> None:
        pass

    for name in COMMANDS:
        if name in names:
            found = find(name)
            if isinstance(found, typer.Typer):
                app.add_typer(found, name=name)
            elif callable(found):
                settings = _PROGRAM_FOLLOWS if name in RUN_PROGRAMS else None
                kind = WholeLine if name in WHOLE_LINES else NamedArguments
                app.command(name, cls=kind, context_settings=settings)(found)
    _keep_examples(app)
    return app


def _keep_examples(app: typer.Typer) -> None:
    """Keep the lines of examples in help texts as they are; other text is wrapped."""
    for command in app.registered_commands:
        text = command.help or (command.callback.__doc__ if command.callback else None)
        command.help = with_examples_kept(text or "")
        if command.cls is TyperCommand:
            command.cls = NamedArguments
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _keep_examples(group.typer_instance)


def with_examples_kept(text: str) -> str:
    """Mark each paragraph of examples, which begins with spaces or `tk`, so that click keeps it.

    click's mark is a line with a backspace.
    """
    from inspect import cleandoc

    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{one}" if one.startswith(("  ", "tk ")) else one for one in paragraphs)


def _show_version(value: bool) -> None:
    if value:
        print(f"tk {__version__}")
        raise typer.Exit
