"""What the file system says, in our words."""

from __future__ import annotations

import errno
import os

from data_fetcher_core.errors import StorageError, StorageFull

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_REMEDIES = {
    errno.EACCES: "let this user write there, or choose another directory",
    errno.EPERM: "let this user write there, or choose another directory",
    errno.EROFS: "choose a directory on a disk that can be written to",
    errno.ENOTDIR: "choose another directory",
    errno.EEXIST: "choose another directory",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or lower the concurrency",
    errno.ENFILE: "close something else that holds many files open",
}


def storage_error(error: OSError, directory: str) -> StorageError:
    """The error to raise for ``error``, met while working in ``directory``."""
    if error.errno in _NO_ROOM:
        return StorageFull(
            f"no room left in {directory} ({_reason(error)}): "
            "free some space there, the run goes on by itself"
        )
    # Of a rename, the final name tells more than the temporary one.
    name = error.filename2 or error.filename
    path = os.fsdecode(name) if isinstance(name, str | bytes) else directory
    remedy = _REMEDIES.get(error.errno or 0)
    return StorageError(f"{path}: {_reason(error)}" + (f": {remedy}" if remedy else ""))


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
