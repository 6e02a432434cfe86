"""Where things lie on this host unless somebody says otherwise."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from urllib.parse import quote

import platformdirs

from data_fetcher_core.errors import ConfigurationError

_NAME = "data-fetcher"


def data_folder() -> Path:
    """The user's own; ``XDG_DATA_HOME`` moves it."""
    return platformdirs.user_data_path(_NAME, appauthor=False).absolute()


def default_store_url() -> str:
    return sqlite_url(data_folder() / "runs.db")


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{quote(str(path.absolute()))}"


def free_pages_folder(run_id: str) -> Path:
    """One for the pages of a new run: not that of a run of this name which was forgotten."""
    names = (run_id if number == 1 else f"{run_id}-{number}" for number in count(1))
    folders = (data_folder() / "pages" / name for name in names)
    return next(folder for folder in folders if not folder.exists())


def make_private(folder: Path) -> None:
    """What lies in it is nobody else's business."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be made ({error.strerror}): set XDG_DATA_HOME to a folder of yours, "
            "or give --store and --out"
        ) from None
