"""The demo in a pod: kubectl and debugpy are real, the cluster is a stand-in."""

from __future__ import annotations

from pathlib import Path

from tunnelkit.demo.debug_story import DebugStory
from tunnelkit.demo.editor import DemoEditor
from tunnelkit.demo.programs import Failed

_POD = "ml-dev-env"
_TK_DIR = "tk"


class PodStory(DebugStory):
    """See `DebugStory`."""

    node = _POD
    program = "kubectl"

    async def play(self) -> None:
        """See `DebugStory.play`."""
        self._show.step("$ tk lab up --kube", "you won't need this: you have a cluster")
        await self._tk.run("lab", "up", "--kube")
        self._show.done(f"An API server on loopback, with pods of processes: {_POD} is one.")
        self._show.step("$ tk init --kube", "once per project: your kubeconfig's context")
        await self._tk.run("init", "--kube", "--yes")
        self._show.done("Wrote tunnelkit.toml and .vscode/: F5 there goes through tk.")
        job = await self.up(_POD)
        what = _POD if job is None else job["id"]
        self._show.done(f"One kubectl proxy, then {what}: no port-forward, no sshd.")
        self._show.detail(f"{self.files} files are mirrored there; so is every save from now.")
        await self.debug()

    async def end(self) -> None:
        """See `DebugStory.end`."""
        self.see()
        self._show.step("$ tk down")
        await self._tk.run("down")
        left = self._files_of_tk()
        self.require(not left, "tk left files in the pod", ", ".join(map(str, left[:3])))
        self._show.done(f"{_POD} goes on. The mirrored files stay in it, and nothing else of tk.")
        await self.lab_down()

    async def tell_where(self, editor: DemoEditor) -> None:
        """Show the pod as the stopped program itself sees it."""
        node, directory = await editor.variable("TK_NODE"), await editor.text("os.getcwd()")
        self.require(node == _POD, "the program runs elsewhere", f"node {node}")
        self._show.detail(f"The program says: pod {node}, in {self._shown(directory)}")

    def _shown(self, directory: str) -> str:
        """Return a directory of the pod without the place that the stand-in gave it."""
        root = str(self._pod_dir)
        if not directory.startswith(root):
            raise Failed("the program runs in another directory", cause=directory)
        return directory[len(root) :] or "/"

    @property
    def _pod_dir(self) -> Path:
        return self._places.base / "lab-kube" / "pods" / _POD

    def _files_of_tk(self) -> list[Path]:
        return [path for path in (self._pod_dir / _TK_DIR).rglob("*") if not path.is_dir()]
