"""All backends, and the choice of one from the settings."""

from __future__ import annotations

from collections.abc import Sequence

from tunnelkit.config.schema import Settings
from tunnelkit.errors import ConfigError, TunnelkitError
from tunnelkit.link.base import Link, LinkSetup
from tunnelkit.session.backends.backend import Backend
from tunnelkit.session.backends.kubernetes import KUBERNETES
from tunnelkit.session.backends.ssh import SSH
from tunnelkit.session.doctor.check import Check

#: The first one is the default.
BACKENDS = (SSH, KUBERNETES)


def choose(settings: Settings, backends: Sequence[Backend] = BACKENDS) -> Backend:
    """Return the backend of the settings' cluster that has the link and scheduler they name.

    config/schema.py refuses unknown names before. Raises ConfigError for a link or scheduler of
    another sort of cluster."""
    link, scheduler = settings.cluster.link, settings.cluster.scheduler
    for backend in backends:
        if not backend.serves(settings):
            continue
        has_link = link == "auto" or link in [kind.name for kind in backend.links]
        if has_link and (scheduler in ("auto", "none") or scheduler in backend.schedulers):
            return backend
    sort = "Kubernetes" if settings.cluster.is_kubernetes else "a cluster that ssh reaches"
    raise ConfigError(
        f"{sort} has no link {link!r} with scheduler {scheduler!r}",
        hint="leave [cluster] link and scheduler out; `tk config show` tells where they are set",
    )


def make_link(settings: Settings, setup: LinkSetup) -> Link:
    """Return the link that the settings choose, not open yet. Raises as `LinkKind.make`."""
    return choose(settings).make_link(settings, setup)


def checks_for(settings: Settings | TunnelkitError) -> tuple[Check, ...]:
    """Return the checks of `tk doctor`; the default backend's if the settings can't be read."""
    backend = BACKENDS[0] if isinstance(settings, TunnelkitError) else choose(settings)
    return backend.checks()
