"""The words of a container's command, as Kubernetes reads them."""

import re
from typing import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(word: str, environ: Mapping[str, str]) -> str:
    """Put in the variables that it names by `$(NAME)`; `$$` is a `$`.

    A name that is not there stays as it is written."""
    return _REFERENCE.sub(
        lambda found: "$" if found[1] is None else environ.get(found[1], found[0]), word
    )
