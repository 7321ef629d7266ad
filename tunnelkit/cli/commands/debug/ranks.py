"""`tk ranks`: where every rank of a program is, and who has not come."""

from __future__ import annotations

from typing import Annotated

from tunnelkit.cli.completion import options, sources
from tunnelkit.cli.lazy_typer import typer


def ranks(
    selection: Annotated[
        str | None,
        typer.Argument(
            metavar="SEL",
            help="Only these ranks, such as 0-3,7 or node=1.",
            autocompletion=sources.selections,
        ),
    ] = None,
    each: Annotated[bool, typer.Option("--all", help="Print a line for each rank.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Print all classes and stacks whole.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again.")] = False,
    native: Annotated[
        bool,
        typer.Option(
            "--native", help="Stacks by py-spy for ranks that don't answer or have no debugger."
        ),
    ] = False,
    loop: Annotated[int | None, options.loop_id_option()] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Show where every rank is, without stopping any.

    Ranks at the same place are one line. Of a collective that some ranks wait in, those who have
    not come are named. tk asks the ranks of a `tk loop` twice, a second apart. Ranks without a
    debugger (`tk run srun ...`) are described from outside; --native adds their stacks, with
    native frames (pip install 'tunnelkit[native]').

    tk ranks               all ranks, and the stack of each class but the biggest
    tk ranks 0-3,7         some ranks; also node=1, local=0, stopped, '!0'
    tk ranks --all         a line for each rank
    tk ranks --watch       until Ctrl-C
    tk ranks --native      py-spy reads the stacks that are missing
    """
    from tunnelkit.cli.views.ranks import RanksOptions, show_ranks

    show_ranks(
        RanksOptions(
            selection=selection,
            each=each,
            full=full,
            watch=watch,
            native=native,
            loop=loop,
            as_json=as_json,
        )
    )
