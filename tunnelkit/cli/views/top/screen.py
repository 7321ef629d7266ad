"""The live screen of `tk top`, by textual (extra `tunnelkit[top]`)."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Static

from tunnelkit.cli.views.top.frames import TopSource, patient_frames
from tunnelkit.cli.views.top.tables import Recent, Show, Table, headline, notes, table_of
from tunnelkit.errors import TunnelkitError

if TYPE_CHECKING:
    from tunnelkit.diagnosis.top.frame import TopInfo


class TopApp(App[None]):
    """failure: why it ended, or None. last_words: for the terminal after the screen is gone."""

    TITLE = "tk top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #headline { height: 1; text-style: bold; padding: 0 1; }
    #notes { height: auto; max-height: 6; padding: 0 1; color: $warning; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "show('ranks')", "ranks"),
        Binding("g", "show('gpus')", "GPUs"),
        Binding("t", "show('threads')", "threads"),
        Binding("n", "show('nodes')", "nodes"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
    ]

    def __init__(self, source: TopSource, show: Show) -> None:
        super().__init__()
        self.failure: TunnelkitError | None = None
        self.last_words = ""
        self._source = source
        self._show = show
        self._recent = Recent()
        self._frame: TopInfo | None = None
        self._columns: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        """Make the parts of the screen."""
        yield Static("asking the nodes ...", id="headline", markup=False)
        yield Static("", id="notes", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read."""
        self.run_worker(self._read(), exclusive=True)

    async def _read(self) -> None:
        try:
            async with aclosing(patient_frames(self._source)) as asked:
                async for one in asked:
                    if isinstance(one, str):
                        self.query_one("#notes", Static).update(one)
                        continue
                    self._frame = one
                    self._recent.add(one)
                    self._draw()
        except TunnelkitError as error:
            self.failure = error
        else:
            ended = "" if self._frame is None else self._frame["job_id"]
            self.last_words = f"job {ended} has ended: tk why {ended}"
        self.exit()

    def action_show(self, name: str) -> None:
        """Show other rows."""
        self._show = Show(name)
        self._draw()

    def _draw(self) -> None:
        frame = self._frame
        if frame is None:
            return
        self.query_one("#headline", Static).update(headline(frame))
        self.query_one("#notes", Static).update("\n".join(notes(frame)))
        self._fill(table_of(frame, self._show, self._recent))

    def _fill(self, table: Table) -> None:
        screen: DataTable[Text] = self.query_one(DataTable)
        at = screen.cursor_row
        # Titles and numbers of rows change with what is shown, and with the job.
        screen.clear(columns=self._columns != table.columns)
        if self._columns != table.columns:
            self._columns = table.columns
            for title in table.columns:
                screen.add_column(title)
        for number, row in enumerate(table.rows):
            style = "bold yellow" if number in table.worst else ""
            screen.add_row(
                *(
                    Text(cell, style, justify="right" if title in table.right else "left")
                    for title, cell in zip(table.columns, row, strict=True)
                )
            )
        if table.rows:
            screen.move_cursor(row=min(at, len(table.rows) - 1))
