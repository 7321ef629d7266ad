"""The commands of a console, as its parser has read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tunnelkit.debug.console.values import How

# -- lines for ranks: pdb's words ----------------------------------------------


@dataclass(frozen=True)
class Evaluate:
    """Python: `p x`, `x`, `x = 1`. whole: `p!`, which shows all of a value."""

    source: str
    how: How
    whole: bool = False


@dataclass(frozen=True)
class Move:
    """`n`, `s`, `r`, by DAP's command."""

    command: Literal["next", "stepIn", "stepOut"]


@dataclass(frozen=True)
class Go:
    """`c`: the ranks run on; waiting ones begin."""


@dataclass(frozen=True)
class Where:
    """`w`: the stack."""


@dataclass(frozen=True)
class ChooseFrame:
    """`u`, `d`. outwards: frames towards the oldest one, negative for `d`."""

    outwards: int


@dataclass(frozen=True)
class ShowSource:
    """`l`, `l 10`, `l 10,20`, `ll`. first, last: lines from 1; 0 if not given. whole: `ll`."""

    first: int = 0
    last: int = 0
    whole: bool = False


@dataclass(frozen=True)
class ShowArguments:
    """`a`: the arguments of the current function."""


@dataclass(frozen=True)
class Break:
    """`b`, `tbreak`. file: as typed; "" for the current one. condition: "" for none."""

    file: str
    line: int
    condition: str = ""
    temporary: bool = False


@dataclass(frozen=True)
class Clear:
    """`cl`: numbers of breakpoints, or a file and its line; all of them if neither is given."""

    numbers: tuple[int, ...] = ()
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Catch:
    """`catch raised`, `catch uncaught`, `catch off`. filters: DAP's words; () for none."""

    filters: tuple[str, ...]


RankLine = (
    Evaluate | Move | Go | Where | ChooseFrame | ShowSource | ShowArguments | Break | Clear | Catch
)

# -- the console's own ----------------------------------------------------------


@dataclass(frozen=True)
class Nothing:
    """An empty line."""


@dataclass(frozen=True)
class ListRanks:
    """`list`. selection: "" for all. each: `list -a`, a row for each rank."""

    selection: str = ""
    at: int = 0
    each: bool = False


@dataclass(frozen=True)
class On:
    """`on SEL`; selection "" asks who it is. at: index of the selection in the line."""

    selection: str = ""
    at: int = 0


@dataclass(frozen=True)
class Attach:
    """`attach [NAME] N`. at: index of the number in the line."""

    rank: str
    at: int


@dataclass(frozen=True)
class Detach:
    """`detach`: lines go to the ranks before the last `on` or `attach`."""


@dataclass(frozen=True)
class Cast:
    """`cast [NAME] ranks(SEL) LINE`. at: index of the selection in the line."""

    selection: str
    at: int
    line: str
    command: RankLine


@dataclass(frozen=True)
class Pause:
    """`pause [SEL]`."""

    selection: str = ""
    at: int = 0


@dataclass(frozen=True)
class OpenEditor:
    """`editor N`."""

    rank: str
    at: int


@dataclass(frozen=True)
class NameDimensions:
    """`mesh pp=2,dp=4`; text "" shows them."""

    text: str = ""
    at: int = 0


@dataclass(frozen=True)
class ListBreakpoints:
    """`b` alone."""


@dataclass(frozen=True)
class Help:
    """`help [WORD]`."""

    word: str = ""


@dataclass(frozen=True)
class Quit:
    """`quit`: leave; all ranks stay as they are."""


Command = (
    RankLine
    | Nothing
    | ListRanks
    | On
    | Attach
    | Detach
    | Cast
    | Pause
    | OpenEditor
    | NameDimensions
    | ListBreakpoints
    | Help
    | Quit
)
