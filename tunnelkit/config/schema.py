"""The settings, frozen, and the one table of keys that everything else is derived from.

Each field of a section's class is annotated with its kind of value (and with its
TOML name where that differs), so a key is described in exactly one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_type_hints

from tunnelkit.config import value_kinds as v
from tunnelkit.config.mirror_roots import ROOTS, SYMLINKS, AlsoRoot, Symlinks
from tunnelkit.errors import ConfigError
from tunnelkit.model import Hop, LocalForward, MirrorSpec, ResourceRequest

SchedulerName = Literal["auto", "slurm", "pbs", "torque", "none"]
LinkName = Literal["auto", "openssh", "paramiko", "kubectl-proxy", "kubectl-exec"]
NodeSsh = Literal["auto", "yes", "no"]
OnDisconnect = Literal["restart", "continue"]
CollectiveTimeouts = Literal["raise", "keep"]
OriginKind = Literal["default", "profile", "project", "environment", "flag"]

# session/backends/registry.py has a record for each of these names but "auto" and "none".
_SCHEDULER = v.choice(*get_args(SchedulerName))
_LINK = v.choice(*get_args(LinkName))
_YES_NO = v.choice("auto", "yes", "no")
_ON_DISCONNECT = v.choice("restart", "continue")
_COLLECTIVE_TIMEOUTS = v.choice("raise", "keep")


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a value. `where`: the file, the variable or the flag; `line` is 1-based."""

    kind: OriginKind = "default"
    where: str = ""
    line: int | None = None

    def __str__(self) -> str:
        if self.kind == "default":
            return "default"
        return self.where if self.line is None else f"{self.where}:{self.line}"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """[cluster]: the way in. `login` is None until somebody names it; `ssh_config` is absolute;
    `link`: which ssh carries all; "auto" is OpenSSH wherever it can share one connection;
    `directory`: tk's own there. `context`: of a kubeconfig; with it the cluster is Kubernetes,
    reached by `kubectl`, and its nodes are pods of `namespace`; `container`: in each of them.
    """

    login: Annotated[Hop | None, v.HOP] = None
    jump: Annotated[tuple[Hop, ...], v.HOPS] = ()
    ssh_config: Annotated[Path | None, v.PATH] = None
    link: Annotated[LinkName, _LINK] = "auto"
    scheduler: Annotated[SchedulerName, _SCHEDULER] = "auto"
    node_ssh: Annotated[NodeSsh, _YES_NO] = "auto"
    python: Annotated[str, v.ARGUMENT] = "python3"
    directory: Annotated[str, v.CLUSTER_DIR] = "~/.cache/tunnelkit"
    prologue: Annotated[str, v.PROLOGUE] = ""
    context: Annotated[str | None, v.ARGUMENT] = None
    namespace: Annotated[str | None, v.SCHEDULER_WORD] = None
    kubectl: Annotated[str, v.ARGUMENT] = "kubectl"
    container: Annotated[str | None, v.SCHEDULER_WORD] = None

    @property
    def is_kubernetes(self) -> bool:
        """True if the cluster is Kubernetes."""
        return self.context is not None


@dataclass(frozen=True, slots=True)
class AllocationSettings:
    """[allocation]: what to ask of the scheduler. None leaves it to the scheduler's default.

    `black_box`: keep a record of the job's processes and memory, for `tk why` after its end.
    `pod`: on Kubernetes the pods to use, as POD, TYPE/NAME or "-l SELECTOR"; `image`: of a pod to
    make instead, `manifest`: a file with an object to make; `gpu_resource`: its GPUs' name there;
    `queue`: of Kueue.
    """

    partition: Annotated[str | None, v.SCHEDULER_WORD] = None
    account: Annotated[str | None, v.SCHEDULER_WORD] = None
    qos: Annotated[str | None, v.SCHEDULER_WORD] = None
    constraint: Annotated[str | None, v.SCHEDULER_WORD] = None
    reservation: Annotated[str | None, v.SCHEDULER_WORD] = None
    exclusive: Annotated[bool, v.BOOLEAN] = False
    requeue: Annotated[bool, v.BOOLEAN] = False
    mem: Annotated[str | None, v.MEM] = None
    gpus: Annotated[int | None, v.COUNT_OR_ZERO] = None
    cpus: Annotated[int | None, v.COUNT] = None
    nodes: Annotated[int, v.COUNT] = 1
    time_limit_s: Annotated[int | None, v.TIME, "time"] = None
    extra: Annotated[tuple[str, ...], v.WORDS] = ()
    black_box: Annotated[bool, v.BOOLEAN] = True
    pod: Annotated[str | None, v.LINE] = None
    image: Annotated[str | None, v.SCHEDULER_WORD] = None
    manifest: Annotated[str | None, v.LINE] = None
    queue: Annotated[str | None, v.SCHEDULER_WORD] = None
    gpu_resource: Annotated[str, v.SCHEDULER_WORD] = "nvidia.com/gpu"

    def request(self, node: str | None = None) -> ResourceRequest:
        """The request for the scheduler, for `node` or for whichever node it gives."""
        asked = asdict(self)
        for key in ("black_box", "pod", "image", "manifest", "queue", "gpu_resource"):
            del asked[key]
        return ResourceRequest(node=node, **asked)

    def asked(self) -> list[str]:
        """Return the names of the values that ask a scheduler for more than its default."""
        plain = asdict(AllocationSettings().request())
        asked = asdict(self.request()).items()
        return [name.removesuffix("_limit_s") for name, value in asked if value != plain[name]]


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """[mirror]: `remote` is absolute or starts with `~/`; excludes are gitignore lines;
    `delete_limit`: more files gone at once than this, and tk asks before it deletes them;
    `symlinks`: "keep" sends them as they are, "ignore" leaves them out; `also`: more
    directories, each with its place on the cluster.

    The loader gives `remote` a default made of the project directory's name.
    """

    enabled: Annotated[bool, v.BOOLEAN] = True
    remote: Annotated[str, v.REMOTE_DIR] = "~/tk/project"
    exclude: Annotated[tuple[str, ...], v.LINES] = ()
    delete_limit: Annotated[int, v.COUNT_OR_ZERO] = 200
    symlinks: Annotated[Symlinks, SYMLINKS] = "keep"
    also: Annotated[tuple[AlsoRoot, ...], ROOTS] = ()


@dataclass(frozen=True, slots=True)
class DebugSettings:
    """[debug]: `port` is the laptop's, for the editor. `standby`: keep the next debuggee ready
    while one runs; `preload`: modules that are imported once for all of them;
    `collective_timeouts`: "raise" those of torch while ranks are debugged, so that a rank at a
    breakpoint kills no other; `read_ahead`: ask a stopped program at once what the editor is about
    to ask."""

    port: Annotated[int, v.PORT] = 40056
    standby: Annotated[bool, v.BOOLEAN] = True
    preload: Annotated[tuple[str, ...], v.MODULES] = ()
    on_disconnect: Annotated[OnDisconnect, _ON_DISCONNECT] = "restart"
    post_mortem: Annotated[bool, v.BOOLEAN] = False
    collective_timeouts: Annotated[CollectiveTimeouts, _COLLECTIVE_TIMEOUTS] = "raise"
    just_my_code: Annotated[bool, v.BOOLEAN] = True
    read_ahead: Annotated[bool, v.BOOLEAN] = True


@dataclass(frozen=True, slots=True)
class Key:
    """One key: `name` as written in TOML, dotted (`cluster.login`); section "" is the top level."""

    name: str
    section: str
    attribute: str
    kind: v.ValueKind
    default: object

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "TK_" + self.name.upper().replace(".", "_")

    @property
    def flag(self) -> str:
        """The flag that sets it, for messages; commands name theirs alike."""
        if self.name in ("forwards", "shared_forwards"):
            return "--" + self.name[:-1].replace("_", "-")
        return "--" + self.name.rpartition(".")[2].replace("_", "-")


Section = ClusterSettings | AllocationSettings | MirrorSettings | DebugSettings
SECTIONS: Mapping[str, type[Section]] = MappingProxyType(
    {
        "cluster": ClusterSettings,
        "allocation": AllocationSettings,
        "mirror": MirrorSettings,
        "debug": DebugSettings,
    }
)


def _section_keys(section: str, cls: type[Section]) -> list[Key]:
    hints = get_type_hints(cls, include_extras=True)
    keys = []
    for one in fields(cls):
        kind, *name = hints[one.name].__metadata__
        written = name[0] if name else one.name
        keys.append(Key(f"{section}.{written}", section, one.name, kind, one.default))
    return keys


def _all_keys() -> dict[str, Key]:
    keys = [Key("profile", "", "profile", v.PROFILE, None)]
    keys.append(Key("forwards", "", "forwards", v.FORWARDS, ()))
    keys.append(Key("shared_forwards", "", "shared_forwards", v.SHARED_FORWARDS, ()))
    for section, cls in SECTIONS.items():
        keys.extend(_section_keys(section, cls))
    return {key.name: key for key in keys}


_SINCE_THE_LAST_RELEASE = frozenset(
    {
        "shared_forwards",
        "cluster.directory",
        "cluster.context",
        "cluster.namespace",
        "cluster.kubectl",
        "cluster.container",
        "allocation.black_box",
        "allocation.pod",
        "allocation.image",
        "allocation.manifest",
        "allocation.queue",
        "allocation.gpu_resource",
        "debug.read_ahead",
    }
)
#: Every key there is, by its dotted name, in the order in which `tk config show` prints them.
KEYS: Mapping[str, Key] = MappingProxyType(_all_keys())


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is configured, and by dotted key where each value came from.

    project_dir is absolute: where tunnelkit.toml was found, else the directory
    tk was called in. config_file is None where there is no tunnelkit.toml.
    """

    profile: str | None
    project_dir: Path
    config_file: Path | None
    cluster: ClusterSettings
    allocation: AllocationSettings
    mirror: MirrorSettings
    debug: DebugSettings
    forwards: tuple[LocalForward, ...]
    shared_forwards: tuple[LocalForward, ...]
    origins: Mapping[str, Origin]

    @property
    def all_forwards(self) -> tuple[LocalForward, ...]:
        """Those for this user alone, and those for all users of the laptop."""
        return (*self.forwards, *self.shared_forwards)

    def value(self, name: str) -> object:
        """The value of the key with this dotted name."""
        key = KEYS[name]
        section = getattr(self, key.section) if key.section else self
        value: object = getattr(section, key.attribute)
        return value

    def written(self, name: str) -> object:
        """The same, as one would write it in TOML or JSON; None where it is not set."""
        value = self.value(name)
        return None if value is None else KEYS[name].kind.dump(value)

    def require_login(self) -> Hop:
        """The login host; raises ConfigError, saying how to give it, if there is none."""
        if self.cluster.login is None:
            raise ConfigError(
                "no login host is configured",
                hint="run `tk init`, or set `login` under [cluster], TK_CLUSTER_LOGIN or a profile",
            )
        return self.cluster.login

    def require_cluster(self) -> str:
        """The login host, or the context and namespace of Kubernetes, as one text.

        Raises ConfigError, saying how to give it, if there is none."""
        if not self.cluster.is_kubernetes:
            return str(self.require_login())
        if self.cluster.namespace is None:
            raise ConfigError(
                "no namespace is configured",
                hint="run `tk init --kube`, or set `namespace` under [cluster]",
            )
        return f"{self.cluster.context}/{self.cluster.namespace}"

    def mirror_specs(self) -> tuple[MirrorSpec, ...]:
        """The mirrored roots: the whole project directory first, then [[mirror.also]]."""
        mirror = self.mirror
        own = MirrorSpec(
            str(self.project_dir),
            mirror.remote,
            mirror.exclude,
            mirror.delete_limit,
            mirror.symlinks,
            guarded=self.origins["mirror.remote"].kind == "project",
        )
        return (
            own,
            *(
                MirrorSpec(
                    root.place(self.project_dir),
                    root.remote,
                    root.exclude,
                    mirror.delete_limit,
                    root.symlinks or mirror.symlinks,
                    name=root.local,
                    guarded=self.origins["mirror.also"].kind == "project",
                )
                for root in mirror.also
            ),
        )

    def to_json(self) -> dict[str, object]:
        """Everything, as JSON types, for `from_json` in another process."""
        return {
            "project_dir": str(self.project_dir),
            "config_file": None if self.config_file is None else str(self.config_file),
            "values": {name: self.written(name) for name in KEYS if self._is_told(name)},
            "origins": {name: [o.kind, o.where, o.line] for name, o in self.origins.items()},
        }

    def _is_told(self, name: str) -> bool:
        """Keys that the last release does not know are left out while they say nothing, so
        that it can read what is handed over."""
        return name not in _SINCE_THE_LAST_RELEASE or self.value(name) != KEYS[name].default

    @staticmethod
    def from_json(data: Mapping[str, object]) -> Settings:
        """Rebuild what `to_json` gave, every value checked again; keys of another version are
        ignored. Raises ConfigError."""
        try:
            return _from_json(data)
        except (KeyError, TypeError, ValueError, v.BadValue) as error:
            raise ConfigError(
                "the handed-over settings can't be read",
                cause=f"{type(error).__name__}: {error}",
                hint="they come from another version of tk; start the session again",
            ) from None


def _from_json(data: Mapping[str, Any]) -> Settings:
    values = {}
    for name, raw in data["values"].items():
        if name not in KEYS:
            continue
        if raw is None and KEYS[name].default is not None:
            raise ValueError(f"{name} has no value")
        values[name] = None if raw is None else KEYS[name].kind.parse(raw)
    config_file = data["config_file"]
    return build(
        values,
        {name: Origin(kind, where, line) for name, (kind, where, line) in data["origins"].items()},
        project_dir=Path(data["project_dir"]),
        config_file=None if config_file is None else Path(config_file),
    )


def build(
    values: Mapping[str, object],
    origins: Mapping[str, Origin],
    *,
    project_dir: Path,
    config_file: Path | None,
) -> Settings:
    """Settings from checked values by dotted key; keys left out keep their default."""
    by_section: dict[str, dict[str, Any]] = {section: {} for section in ("", *SECTIONS)}
    for name, value in values.items():
        key = KEYS[name]
        by_section[key.section][key.attribute] = value
    top = by_section[""]
    return Settings(
        profile=top.get("profile"),
        project_dir=project_dir,
        config_file=config_file,
        cluster=ClusterSettings(**by_section["cluster"]),
        allocation=AllocationSettings(**by_section["allocation"]),
        mirror=MirrorSettings(**by_section["mirror"]),
        debug=DebugSettings(**by_section["debug"]),
        forwards=top.get("forwards", ()),
        shared_forwards=top.get("shared_forwards", ()),
        origins=MappingProxyType({name: origins.get(name, Origin()) for name in KEYS}),
    )
