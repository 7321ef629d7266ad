"""`PROGRAM STATE_DIR ARGS...`"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.pbs_programs.mom import mom, pbs_attach, pbs_track, qsig
from tests.support.pbs_programs.qsub import linger, qsub
from tests.support.pbs_programs.show import pbsnodes, qdel, qselect, qstat, refuse_connection
from tests.support.pbs_programs.state import State


def main() -> None:
    program, root, *argv = sys.argv[1:]
    state = State(Path(root))
    asks = program not in ("mom", "linger", "pbs_attach", "pbs_track") and argv != ["--version"]
    if asks and state.config["down"]:
        refuse_connection(program, argv)
    commands = {"qsub": qsub, "qstat": qstat, "qselect": qselect, "qdel": qdel,
                "pbsnodes": pbsnodes, "mom": mom, "linger": linger,
                "pbs_attach": pbs_attach, "pbs_track": pbs_track, "qsig": qsig}  # fmt: skip
    commands[program](state, argv)
