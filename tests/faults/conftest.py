"""Every test of faults answers for its authentications."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _counted(counted_logins: None) -> None:
    """See tests/support/logins.py."""
