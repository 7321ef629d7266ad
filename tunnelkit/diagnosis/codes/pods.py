"""Codes of pods: why they wait, and how they ended, as the API server says."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage

_W, _E = Stage.WAITING, Stage.ENDED
_STATUS = "The container's state in the pod's status says so."

PODS = (
    Code(
        "pod-no-room",
        _W,
        Actor.NOBODY,
        "No node has room for the pod now.",
        "The scheduler's count of nodes, in the pod's condition PodScheduled: what each lacks.",
        "Wait, or ask for less: GPUs, CPUs or memory.",
    ),
    Code(
        "pod-fits-nowhere",
        _W,
        Actor.YOU,
        "No node is one that the pod may have: labels, taints or affinity rule all of them out.",
        "The scheduler's count of nodes names no lack of room.",
        "Change nodeSelector, affinity or tolerations; `kubectl get nodes --show-labels` shows the "
        "labels.",
        fatal=True,
    ),
    Code(
        "pod-gated",
        _W,
        Actor.NOBODY,
        "A gate holds the pod back: Kueue has not admitted it yet.",
        "The pod's condition PodScheduled has the reason SchedulingGated.",
        "Wait until the queue has room; `kubectl get workloads` shows its place.",
    ),
    Code(
        "pod-no-pod",
        _W,
        Actor.NOBODY,
        "There is no pod yet: its owner has made none, or a queue holds the owner back.",
        "The API server lists no pod for it.",
        "`kubectl describe` of the owner says what it waits for: a quota, a queue, a policy.",
    ),
    Code(
        "pod-image",
        _W,
        Actor.YOU,
        "The image can't be pulled.",
        _STATUS,
        "Check the image's name and tag, and the pull secret; the registry may be away.",
    ),
    Code(
        "pod-config",
        _W,
        Actor.YOU,
        "The container can't be made: it names a ConfigMap, a Secret or a volume that is not "
        "there, or may not run as it asks.",
        _STATUS,
        "Make what the message names, or take it out of the manifest.",
        fatal=True,
    ),
    Code(
        "pod-crash-loop",
        _W,
        Actor.PROGRAM,
        "The container ends soon after each start, and is started again and again.",
        "The state CrashLoopBackOff, or a container that is started again; with its last end.",
        "`kubectl logs --previous` shows its last words; to look at it, have it sleep, and use "
        "`tk up`.",
        fatal=True,
    ),
    Code(
        "pod-starts",
        _W,
        Actor.NOBODY,
        "The pod has a node, which fetches the image and starts it.",
        "The pod's condition PodScheduled is true, and no container runs.",
        "Wait. A large image takes minutes the first time on a node.",
    ),
    Code(
        "pod-runs",
        Stage.RUNNING,
        Actor.NOBODY,
        "The pod runs.",
        "Its container's state.",
        "`tk up POD` and `tk ranks` say what its program does.",
    ),
    Code(
        "pod-out-of-memory",
        _E,
        Actor.YOU,
        "The container was killed because its memory limit was reached.",
        "The reason OOMKilled of the container's end. The API does not know a child that was "
        "killed so: there the main process goes on.",
        "Raise the memory limit, or use less: smaller batches, fewer workers.",
        fatal=True,
    ),
    Code(
        "pod-evicted",
        _E,
        Actor.ADMINISTRATOR,
        "The pod was taken off its node: the node ran short, is drained, or a pod of higher "
        "priority came.",
        "The pod's reason Evicted, or its condition DisruptionTarget.",
        "Start it again. Requests near what it uses, and a priority class, keep it longer.",
        fatal=True,
    ),
    Code(
        "pod-time-limit",
        _E,
        Actor.YOU,
        "The pod reached its time limit, activeDeadlineSeconds.",
        "The pod's reason DeadlineExceeded.",
        "Ask for more time: `tk up --time`, or activeDeadlineSeconds in the manifest.",
        fatal=True,
    ),
    Code(
        "pod-node-lost",
        _E,
        Actor.ADMINISTRATOR,
        "The pod's node was lost.",
        "The pod's reason NodeLost, or a condition that says that its node is gone.",
        "Start it again; if the node fails often, show its name to the administrator.",
        fatal=True,
    ),
    Code(
        "pod-no-command",
        _E,
        Actor.YOU,
        "The container's command can't be started.",
        _STATUS,
        "Check the command's path in the image, and that it may be executed.",
        fatal=True,
    ),
    Code(
        "pod-failed",
        _E,
        Actor.PROGRAM,
        "The container's main process ended with an exit code that is not 0.",
        _STATUS,
        "`kubectl logs` shows its last words; 137 is SIGKILL, 143 SIGTERM.",
        fatal=True,
    ),
    Code(
        "pod-done",
        _E,
        Actor.NOBODY,
        "The container's main process ended with exit code 0.",
        _STATUS,
        "Nothing need be done.",
    ),
    Code(
        "pod-deleted",
        _E,
        Actor.YOU,
        "The pod is being deleted.",
        "It has a time of deletion.",
        "Nothing need be done if you deleted it; else ask who did.",
    ),
)
