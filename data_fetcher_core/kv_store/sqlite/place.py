"""Whether a database may live at a path: a plain file, on a disk of this host."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath

from data_fetcher_core.errors import ConfigurationError, StoreUnavailable

# Several hosts share these, while a write-ahead log needs memory that all its users share; and
# their locks are promises of a server. 9p is a virtual machine's window on one host's own disk.
_NETWORK_TYPES = frozenset(
    {
        "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
        "ocfs2", "smb2", "smb3", "smbfs",
        "fuse.ceph", "fuse.cephfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs",
        "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
    }
)  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


def check_place(path: Path) -> None:
    """Refuse a path where no database can be, or none should."""
    if path.exists() and not path.is_file():
        what = "a directory" if path.is_dir() else "no plain file"
        raise ConfigurationError(f"{path} is {what}: give the path of a database file")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        # SQLite would open it for reading, and leave its log behind.
        raise StoreUnavailable(f"{path} may not be read and written: change its mode or its owner")
    if not path.parent.is_dir():
        raise StoreUnavailable(f"{path.parent} is not there, or no directory: create it first")
    kind = network_type(_mount_table(), path)
    if kind is not None:
        raise ConfigurationError(
            f"{path} lies on a network file system ({kind}), where SQLite can lose data: use a "
            "local disk, or a Redis store (redis://…) to share a run between hosts"
        )


def network_type(mount_table: str, path: PurePath) -> str | None:
    """The type of the file system that holds ``path``, if it is one that hosts share.

    ``mount_table`` is the text of ``/proc/self/mountinfo``: the last mount over the longest part
    of the path is the one that counts.
    """
    holders = [path, *path.parents]
    nearest, kind = len(holders), ""
    for line in mount_table.splitlines():
        head, _, tail = line.partition(" - ")
        point = PurePath(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), head.split(" ")[4]))
        if point in holders and holders.index(point) <= nearest:
            nearest, kind = holders.index(point), tail.split(" ")[0]
    return kind if kind in _NETWORK_TYPES else None


def _mount_table() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return ""
