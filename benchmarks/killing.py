"""A crawl that is killed with ``kill -9`` and begun again: what is lost? Standard library only.

The site is the witness: each of its pages is linked from one page alone, and it has counted what
it was asked for. What was asked for and then never seen to, the crawler's own record tells.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.asked import again, asked, distinct

PATIENCE = 240.0
GLANCE = 0.02


def killed_and_resumed(module: str, given: dict[str, Any]) -> dict[str, float]:
    """Kill it once the site has been asked for the share ``kill_at`` of its pages; resume."""
    processed = Path(given["folder"]) / "processed.txt"
    command = _command(module, given, processed)
    _kill_at(command, given["site_url"], round(given["kill_at"] * given["pages"]))
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE)
    seconds = time.perf_counter() - begin
    counts = asked(given["site_url"])
    return {
        "lost": len(counts) - distinct(counts),
        "never_processed": len(counts) - len(set(processed.read_text().split())),
        "fetched_again": again(counts),
        "second_run_s": seconds,
    }


def _command(module: str, given: dict[str, Any], processed: Path) -> list[str]:
    crawl = {name: value for name, value in given.items() if name != "kill_at"}
    crawl |= {"resumable": True, "processed": str(processed)}
    return [sys.executable, "-m", module, json.dumps(crawl)]


def _kill_at(command: list[str], site_url: str, pages: int) -> None:
    crawler = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    give_up = time.monotonic() + PATIENCE
    try:
        while distinct(asked(site_url)) < pages:
            if crawler.poll() is not None or time.monotonic() > give_up:
                raise SystemExit(f"it did not get as far as {pages} pages, where it was to die")
            time.sleep(GLANCE)
    finally:
        crawler.kill()
        crawler.wait()
