"""A seeded person: edits a tree in every way that editors, shells and git do, and meanwhile jobs
on the cluster write files of their own. It remembers what nobody may lose."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.mirror_rig import tree

_FILE_MODES = (0o644, 0o644, 0o755, 0o600, 0o444)
_DIR_MODES = (0o755, 0o755, 0o700, 0o750)
#: Never a directory with other names in it, see `Outputs`.
_SWAP_NAMES = ("s0", "s1", "s2 with space", "-s3")
_DIR_NAMES = ("d0", "d1", "d2", "dä", "-d4")
_FILE_NAMES = ("f0.py", "f1.py", "f2 two.py", "-f3", "f\n4", os.fsdecode(b"f\xff5"), "f6.sh", "f7")
_MOST_DEPTH = 3
#: What an rsync leaves that was cut off; its own, and no name that we use looks like it.
_RSYNC_TEMPORARY = re.compile(rb"\..+\.[A-Za-z0-9]{6}", re.DOTALL)
_BURST = 300
_MOST_FILES = 1500


@dataclass(frozen=True)
class Kept:
    """A file on the cluster that is not tk's: all of it that must stay."""

    content: bytes
    mode: int
    mtime_ns: int

    @staticmethod
    def of(path: Path) -> Kept | None:
        try:
            info = path.lstat()
            return Kept(path.read_bytes(), info.st_mode, info.st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            return None


class Edits:
    """One random edit of `root` at a time; each says what it did."""

    def __init__(
        self, root: Path, dice: random.Random, *, keep: frozenset[str] = frozenset()
    ) -> None:
        """keep: names that are left alone."""
        self.root = root
        self._dice = dice
        self._keep = keep
        self._serial = 0
        plenty: list[tuple[int, Callable[[], str | None]]] = [
            (12, self.save),
            (8, self.save_atomically),
            (5, self.truncate_then_append),
            (5, self.same_size_and_mtime),
            (6, self.new_file),
            (6, self.rename_file),
            (5, self.delete_file),
            (5, self.chmod_file),
            (2, self.chmod_directory),
            (4, self.link),
            (3, self.retarget),
            (6, self.swap),
            (3, self.rename_directory),
            (2, self.delete_directory),
            (3, self.nested),
            (1, self.burst),
        ]
        self._edits = [edit for weight, edit in plenty for _ in range(weight)]

    def one(self) -> str:
        """Do something; what it was, in a line."""
        while True:
            edit = self._dice.choice(self._edits)
            said = edit()
            if said is not None:
                return said

    # -- files --------------------------------------------------------------

    def save(self) -> str | None:
        """In place, as most editors do."""
        path = self._file()
        if path is None or not path.stat().st_mode & 0o200:
            return None
        path.write_bytes(self._text())
        return f"save {self._name(path)}"

    def save_atomically(self) -> str | None:
        """A temporary beside it, then renamed over it."""
        path = self._file()
        if path is None:
            return None
        temporary = path.with_name(f".{path.name}.swp~")
        temporary.write_bytes(self._text())
        temporary.replace(path)
        return f"save atomically {self._name(path)}"

    def truncate_then_append(self) -> str | None:
        path = self._file()
        if path is None or not path.stat().st_mode & 0o200:
            return None
        with path.open("wb"):
            pass
        for _ in range(self._dice.randint(1, 4)):
            with path.open("ab") as stream:
                stream.write(self._text())
        return f"truncate and append {self._name(path)}"

    def same_size_and_mtime(self) -> str | None:
        """As `touch -d` does after an edit: size and time say nothing."""
        path = self._file()
        if path is None or not path.stat().st_mode & 0o200:
            return None
        before = path.stat()
        content = path.read_bytes()
        if not content:
            return None
        path.write_bytes(self._dice.randbytes(len(content)))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return f"same size and mtime {self._name(path)}"

    def new_file(self) -> str | None:
        path = self._directory() / self._dice.choice(_FILE_NAMES)
        if os.path.lexists(path):
            return None
        path.write_bytes(self._text())
        path.chmod(self._dice.choice(_FILE_MODES))
        return f"new {self._name(path)}"

    def rename_file(self) -> str | None:
        path = self._file()
        if path is None:
            return None
        goal = self._directory() / self._dice.choice(_FILE_NAMES)
        if goal.is_dir() and not goal.is_symlink():
            return None
        path.replace(goal)
        return f"rename {self._name(path)} -> {self._name(goal)}"

    def delete_file(self) -> str | None:
        path = self._file()
        if path is None:
            return None
        path.unlink()
        return f"delete {self._name(path)}"

    def chmod_file(self) -> str | None:
        path = self._file()
        if path is None:
            return None
        mode = self._dice.choice(_FILE_MODES)
        path.chmod(mode)
        return f"chmod {mode:o} {self._name(path)}"

    # -- directories and symlinks -------------------------------------------

    def chmod_directory(self) -> str | None:
        path = self._directory()
        if path == self.root:
            return None
        mode = self._dice.choice(_DIR_MODES)
        path.chmod(mode)
        return f"chmod {mode:o} {self._name(path)}/"

    def link(self) -> str | None:
        path = self._directory() / f"l{self._dice.randint(0, 5)}"
        if os.path.lexists(path):
            return None
        target = self._dice.choice(["f0.py", "../d0", "/nowhere at all", ".", "l0", "n\nl"])
        path.symlink_to(target)
        return f"symlink {self._name(path)} -> {target!r}"

    def retarget(self) -> str | None:
        links = [path for path in self._walk() if path.is_symlink()]
        if not links:
            return None
        path = self._dice.choice(links)
        path.unlink()
        target = self._dice.choice(["elsewhere", "f1.py", "..", "d0/f0.py"])
        path.symlink_to(target)
        return f"retarget {self._name(path)} -> {target!r}"

    def swap(self) -> str | None:
        """What was a file becomes a directory, a symlink, and the other ways round."""
        path = self._directory() / self._dice.choice(_SWAP_NAMES)
        was = self._remove(path)
        will = self._dice.choice(["file", "directory", "symlink", "nothing"])
        if will == "nothing":
            return f"swap {self._name(path)}: {was} -> nothing" if was != "nothing" else None
        if will == "file":
            path.write_bytes(self._text())
        elif will == "symlink":
            path.symlink_to("f0.py")
        else:
            (path / "in").mkdir(parents=True)
            (path / "in" / "side.py").write_bytes(self._text())
            (path / "f0.py").write_bytes(self._text())
        return f"swap {self._name(path)}: {was} -> {will}"

    def rename_directory(self) -> str | None:
        path = self._directory()
        goal = self._directory() / self._dice.choice(_DIR_NAMES)
        if path == self.root or os.path.lexists(goal) or goal.is_relative_to(path):
            return None
        if len(goal.relative_to(self.root).parts) > _MOST_DEPTH:
            return None
        path.rename(goal)
        return f"rename {self._name(path)}/ -> {self._name(goal)}/"

    def delete_directory(self) -> str | None:
        path = self._directory()
        if path == self.root:
            return None
        shutil.rmtree(path)
        return f"delete {self._name(path)}/"

    def nested(self) -> str | None:
        """`mkdir -p` and files in it at once, before any watch can be there."""
        parts = [self._dice.choice(_DIR_NAMES) for _ in range(_MOST_DEPTH)]
        path = self.root.joinpath(*parts)
        if any(part.is_symlink() for part in [path, *path.parents]):
            return None
        path.mkdir(parents=True, exist_ok=True)
        for number in range(self._dice.randint(1, 8)):
            (path / f"f{number}.py").write_bytes(self._text())
        return f"nested {self._name(path)}/"

    def burst(self) -> str | None:
        """300 files at once; later, if there are many, one such directory goes again."""
        bursts = [path for path in self.root.iterdir() if path.name.startswith("b")]
        if len(self._walk()) > _MOST_FILES - _BURST:
            path = self._dice.choice(bursts)
            shutil.rmtree(path)
            return f"delete {self._name(path)}/ (a burst)"
        self._serial += 1
        path = self.root / f"b{self._serial}"
        path.mkdir()
        for number in range(_BURST):
            (path / f"{number:03}.py").write_bytes(self._text())
        return f"burst {self._name(path)}/"

    # -- choices --------------------------------------------------------------

    def _walk(self) -> list[Path]:
        found = []
        for base, dirs, files in os.walk(self.root):
            dirs.sort()
            found += [Path(base, name) for name in sorted([*dirs, *files])]
        return found

    def _file(self) -> Path | None:
        found = (path for path in self._walk() if path.name not in self._keep)
        files = [path for path in found if path.is_file() and not path.is_symlink()]
        return self._dice.choice(files) if files else None

    def _directory(self) -> Path:
        """The root or one of the directories that stay directories, not too deep."""
        found = [self.root]
        for path in self._walk():
            if path.is_symlink() or not path.is_dir():
                continue
            parts = path.relative_to(self.root).parts
            if len(parts) < _MOST_DEPTH and not any(part in _SWAP_NAMES for part in parts):
                found.append(path)
        return self._dice.choice([path for path in found if not path.name.startswith("b")])

    def _remove(self, path: Path) -> str:
        if path.is_symlink():
            path.unlink()
            return "symlink"
        if path.is_dir():
            shutil.rmtree(path)
            return "directory"
        if path.exists():
            path.unlink()
            return "file"
        return "nothing"

    def _text(self) -> bytes:
        size = self._dice.choice([0, 1, 5, 5, 200, 4000, 70_000])
        return self._dice.randbytes(size)

    def _name(self, path: Path) -> str:
        return ascii(str(path.relative_to(self.root)))


class Outputs:
    """Files that jobs write below `root` on the cluster. Some lie where the laptop later makes a
    file of the same name: that content must then be found in `.tk-replaced`."""

    def __init__(self, root: Path, local: Path, dice: random.Random) -> None:
        self._root, self._local = root, local
        self._dice = dice
        self._serial = 0
        self._written: dict[Path, Kept] = {}
        self._met: list[tuple[str, bytes]] = []

    def write(self) -> str:
        """A new file beside the mirrored ones, or a new content of an old one of these."""
        if self._written and self._dice.random() < 0.3:
            path = self._dice.choice(list(self._written))
        else:
            self._serial += 1
            path = self._dice.choice(self._directories()) / f"out-{self._serial}.bin"
        return self._put(path)

    def meet(self) -> str:
        """A file there; then the laptop makes one of the same name."""
        self._serial += 1
        name = f"met-{self._serial}.txt"
        path = self._dice.choice([self._root, *self._shared()]) / name
        below = str(path.relative_to(self._root))
        content = f"there {self._serial} {self._dice.random()}".encode()
        try:
            path.write_bytes(content)
        except FileNotFoundError:  # its directory went this moment
            return "met nothing"
        (self._local / below).write_bytes(f"here {self._serial}".encode())
        self._met.append((below, content))
        return f"meet {below!a}"

    def paths(self) -> set[Path]:
        """Where they are, or may be."""
        return {*self._written, *(self._root / below for below, _ in self._met)}

    def lost(self) -> list[str]:
        """What is no longer as it was written."""
        found = [
            f"output {path} is {Kept.of(path)}, was {kept}"
            for path, kept in self._written.items()
            if Kept.of(path) != kept
        ]
        aside = list((self._root / ".tk-replaced").glob("*"))
        for below, content in self._met:
            # Still there, if the laptop has moved its own away before it was sent.
            copies = [stamp / below for stamp in [*aside, self._root]]
            if not any(copy.is_file() and copy.read_bytes() == content for copy in copies):
                found.append(f"{below!a}: the cluster's content is nowhere in .tk-replaced")
        return found

    def _put(self, path: Path) -> str:
        content = self._dice.randbytes(self._dice.randint(1, 3000))
        try:
            path.write_bytes(content)
        except FileNotFoundError:  # its directory went this moment
            path = self._root / path.name
            path.write_bytes(content)
        path.chmod(self._dice.choice((0o644, 0o600, 0o755)))
        kept = Kept.of(path)
        assert kept is not None
        self._written[path] = kept
        return f"output {str(path.relative_to(self._root))!a}"

    def _directories(self) -> list[Path]:
        """There, and never to be swapped with a file."""
        found = [self._root]
        for base, dirs, _ in os.walk(self._root):
            dirs[:] = sorted(name for name in dirs if name in _DIR_NAMES)
            found += [Path(base, name) for name in dirs]
        return [path for path in found if not path.is_symlink()]

    def _shared(self) -> list[Path]:
        """Directories that are on both sides."""
        pairs = [(path, self._local / path.relative_to(self._root)) for path in self._directories()]
        return [path for path, local in pairs if local.is_dir() and not local.is_symlink()]


def differences(local: Path, far: Path, outputs: Outputs) -> list[str]:
    """In what the cluster's tree is not the laptop's with the outputs in it."""
    here, there = tree(local), tree(far)
    found = []
    for name, entry in here.items():
        # The mirror's own: it looks whether events come, at any time.
        if there.get(name) != entry and not name.startswith(b".tk-cookie-"):
            found.append(f"{os.fsdecode(name)!a}: here {entry}, there {there.get(name)}")
    theirs = {os.fsencode(path.relative_to(far)) for path in outputs.paths()} & there.keys()
    # An rsync that is killed on the cluster leaves one; tk can't know it from somebody's file,
    # and so neither it nor its directory goes.
    theirs |= {one for one in there if _RSYNC_TEMPORARY.fullmatch(os.path.basename(one))}
    allowed = {b".tk-replaced", *theirs}
    for name in theirs:
        while b"/" in name:
            name = name.rpartition(b"/")[0]
            allowed.add(name)
    for name, entry in there.items():
        if name in here or name in allowed or name.startswith(b".tk-replaced/"):
            continue
        inside = [os.path.basename(one) for one in there if os.path.dirname(one) == name]
        found.append(f"{os.fsdecode(name)!a}: only there, {entry}, with {inside}")
    return found
