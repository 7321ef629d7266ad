"""The pod or object that tk makes on Kubernetes; kubectl reads the manifest of one."""

from __future__ import annotations

from pathlib import Path

from tunnelkit.child_process import run_child
from tunnelkit.config.schema import Settings
from tunnelkit.errors import UsageError
from tunnelkit.link.kube.printable import printable
from tunnelkit.scheduler.kube.manifest import Manifest, parse_manifest
from tunnelkit.scheduler.kube.pod_spec import SESSION_LABEL, PodTemplate

#: The API server takes objects of 1.5 MB at most.
_MOST_BYTES = 1_500_000
_READ_S = 20.0


def uses_manifest(settings: Settings) -> bool:
    """True if a manifest is made; an image that was given as an option comes first."""
    asked, origin = settings.allocation, settings.origins["allocation.image"]
    return asked.manifest is not None and (asked.image is None or origin.kind != "flag")


async def template_of(settings: Settings) -> PodTemplate | Manifest | None:
    """Return what `[allocation]` has tk make; None if nothing. Raises UsageError."""
    asked = settings.allocation
    if asked.manifest is not None and uses_manifest(settings):
        return await _read(settings, asked.manifest)
    if asked.image is None:
        return None
    return PodTemplate(asked.image, asked.gpu_resource, queue=asked.queue)


async def _read(settings: Settings, written: str) -> Manifest:
    path = Path(settings.project_dir, written)
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="was it moved? tk up -f FILE")
    if path.stat().st_size > _MOST_BYTES:
        raise UsageError(f"{path} is too large for a manifest", hint="is it another file?")
    # `create --dry-run=client` would ask the server for its kinds; a label can be set without.
    words = ["label", "--local", "-f", str(path), "-o", "json", f"{SESSION_LABEL}=tk"]
    done = await run_child([settings.cluster.kubectl, *words], timeout_s=_READ_S)
    if done.exit_code != 0:
        raise UsageError(
            f"{path.name} can't be read as a manifest",
            cause=printable(done.error_text),
            hint="`kubectl apply --dry-run=client -f` checks it",
        )
    printed = done.stdout.decode("utf-8", "replace")
    cluster, queue = settings.cluster, settings.allocation.queue
    return parse_manifest(printed, name=path.name, container=cluster.container, queue=queue)
