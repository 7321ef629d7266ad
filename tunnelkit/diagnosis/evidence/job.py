"""A job as its scheduler describes it. Times are Unix seconds; None is "not on record"."""

from __future__ import annotations

from dataclasses import dataclass

from tunnelkit.model import JobState


@dataclass(frozen=True, slots=True)
class GpuNeed:
    """GPUs that are asked for, or that a node has. kind: "" for any."""

    count: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class NodeNeed:
    """The needs of a job on each node. features: the scheduler's expression, "" for none."""

    cpus: int = 1
    mem_bytes: int | None = None
    gpus: tuple[GpuNeed, ...] = ()
    features: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """The ways to spread a job over nodes.

    nodes_most: None for no limit. node_cpus: at least so many on each node. tasks_per_node: 0 if
    it is left open. mem_per_cpu_bytes: instead of memory a node. all_memory: it takes all of a
    node's, where memory is counted. exclusive: no other job may be on its nodes. gpus_per_task,
    gpus_total: where GPUs are not asked for by node. cpus_per_gpu, mem_per_gpu_bytes: 0 if not
    asked for. unclear: it asks for something by GPU, and how much that is on a node is not known;
    or it is a part of a heterogeneous job.
    """

    nodes_least: int = 1
    nodes_most: int | None = 1
    tasks: int = 1
    cpus_per_task: int = 1
    node_cpus: int = 1
    tasks_per_node: int = 0
    mem_per_cpu_bytes: int | None = None
    mem_per_node_bytes: int | None = None
    all_memory: bool = False
    exclusive: bool = False
    gpus_per_node: tuple[GpuNeed, ...] = ()
    gpus_per_task: tuple[GpuNeed, ...] = ()
    gpus_total: tuple[GpuNeed, ...] = ()
    cpus_per_gpu: int = 0
    mem_per_gpu_bytes: int = 0
    unclear: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """One job.

    reason: the scheduler's own words for why it waits or how it ended. restarts: how often it
    went back into the queue. expected_start_s: the scheduler's estimate, and expected_nodes where.
    nodes_wanted: how many. required_nodes, excluded_nodes: by name. dependency: the scheduler's
    expression. exit_code, signal: of the job's script. directory: its working directory.
    stdout_path, stderr_path: its logs, on the cluster. log_names: the files' names where these are
    directories, if the scheduler allows that (PBS). raw_id: the number of an array's element
    by itself; "" if job_id is it. code_by_sacct: sacct shows exit codes from 128 on less 128.
    derived_code: the highest exit code of its steps. mem_total_bytes: asked for on all nodes
    together, where the scheduler counts it so (PBS). elements: of a Slurm array, the indexes that
    wait, as Slurm writes them (`2-9`, or `1,3,...` where it cuts them off); "" for none.
    component: it is a part of a heterogeneous job, whose parts start together.
    repeats: it runs again at its next time (scrontab). unlimited: it is on record that it has no
    time limit.
    """

    job_id: str
    state: JobState
    native_state: str
    reason: str | None = None
    name: str = ""
    user: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    priority: int | None = None
    restarts: int = 0
    submit_s: float | None = None
    eligible_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    expected_start_s: float | None = None
    expected_nodes: tuple[str, ...] = ()
    time_limit_s: int | None = None
    nodes_wanted: int = 1
    need: NodeNeed = NodeNeed()
    licenses: str = ""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    dependency: str = ""
    reservation: str = ""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    directory: str = ""
    command: str = ""
    stdout_path: str = ""
    stderr_path: str = ""
    log_names: tuple[str, str] = ("", "")
    comment: str = ""
    shape: Shape = Shape()
    raw_id: str = ""
    code_by_sacct: bool = False
    derived_code: int | None = None
    mem_total_bytes: int | None = None
    elements: str = ""
    component: bool = False
    repeats: bool = False
    unlimited: bool = False

    @property
    def address(self) -> str:
        """The id of all that waits of it: of an array, the elements that do (`7_[2-9]`)."""
        return f"{self.job_id}_[{self.elements}]" if self.elements else self.job_id

    @property
    def suspended(self) -> bool:
        """True if its scheduler makes its processes stand still (PBS: S and U)."""
        return self.native_state in ("SUSPENDED", "S", "U")

    @property
    def step_id(self) -> str:
        """The id by which steps are started in the job, and its processes found."""
        return self.raw_id or self.job_id
