"""A disk of a few megabytes that only those see who are started on it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.programs import Start, start_command

# How to be where one may mount, as root and as anybody else; and how others get there.
_WAYS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("unshare", "-m"), ()),
    (("unshare", "-r", "-m"), ("--user", "--preserve-credentials")),
)
# Its process keeps the disk, until its input ends.
_KEEP = 'mount -t tmpfs -o "size=$1" none "$2" && echo mounted && exec cat'


class SmallDisk:
    """Mounted at ``place``, in the eyes of what is started by ``start``."""

    def __init__(self, place: Path, keeper: int, enter: Sequence[str]) -> None:
        self.place = place
        self.wrap = ("nsenter", "--mount", *enter, "--target", str(keeper))
        self.start: Start = partial(start_command, wrap=self.wrap)
        self._root = Path(f"/proc/{keeper}/root")

    def seen(self, path: Path) -> Path:
        """Something on the disk, as this process can open it."""
        return self._root / path.relative_to("/")

    def fill(self, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Leave no room for anything; asks before each page that it takes."""
        with self._filler.open("ab", buffering=0) as filler, suppress(OSError):
            while may_go_on() and filler.write(bytes(4096)):
                pass

    def make_room(self) -> None:
        self._filler.unlink()

    @property
    def _filler(self) -> Path:
        return self.seen(self.place / "filler")


@contextmanager
def small_disk(place: Path, size: str = "2m") -> Iterator[SmallDisk | None]:
    """The disk; ``None`` where nothing may be mounted."""
    for own, enter in _WAYS:
        with _keeper(own, place, size) as keeper:
            if keeper.stdout is not None and keeper.stdout.readline() == "mounted\n":
                yield SmallDisk(place, keeper.pid, enter)
                return
    yield None


@contextmanager
def _keeper(own: Sequence[str], place: Path, size: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command = [*own, "sh", "-c", _KEEP, "keeper", size, str(place)]
    keeper = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield keeper
    finally:
        keeper.communicate(timeout=20)
