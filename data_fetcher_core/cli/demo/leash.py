"""``data-fetcher``, but it ends when the process that started it is gone.

Nothing is ever written to its input; when that ends, nobody holds the other end any more.
"""

from __future__ import annotations

import os
import threading

_INPUT = 0


def _end_with_parent() -> None:
    while os.read(_INPUT, 1):
        pass
    os._exit(1)


def main() -> None:
    threading.Thread(target=_end_with_parent, name="leash", daemon=True).start()
    from data_fetcher_core.cli import main as data_fetcher  # noqa: PLC0415 - the thread comes first

    data_fetcher()


if __name__ == "__main__":
    main()
