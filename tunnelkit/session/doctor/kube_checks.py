"""The checks of `tk doctor` for Kubernetes."""

from __future__ import annotations

from tunnelkit.session.doctor import laptop_checks
from tunnelkit.session.doctor.check import Check

KUBE_CHECKS: tuple[Check, ...] = ()
del laptop_checks
