"""Short directories for what holds Unix sockets, named after the run of `scripts/test`.

What is started there with an environment of its own, as a lab's daemons are, has them in its PATH:
so `scripts/leftovers` tells them from a developer's own lab.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def short_name(kind: str) -> str:
    """What a directory in /tmp begins with."""
    return f"tk{os.environ.get('TK_TEST_RUN', '')}{kind}"


def short_dir(kind: str) -> Path:
    """A new directory, which the caller removes."""
    return Path(tempfile.mkdtemp(prefix=short_name(kind), dir="/tmp"))
