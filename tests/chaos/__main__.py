"""The command line: ``python -m tests.chaos``."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.again import close_again, kept_in
from tests.chaos.conducting import conduct
from tests.chaos.figures import Figures
from tests.chaos.poison import conduct_poison, show_poison
from tests.chaos.scale import conduct_scale, show_scale
from tests.chaos.telling import Teller, tell
from tests.chaos.tiers import LONG, POISON, SCALE, SHORT, SOAK, Tier

HELD, BROKEN, BAD_USAGE = 0, 1, 2
_TIERS = {"short": SHORT, "long": LONG, "soak": SOAK, "scale": SCALE, "poison": POISON}
_EPILOG = """\
tiers:
  short   5,000 requests in half a minute, 4 processes of 25 workers; at least 10 workers and 3
          servers are killed, 1,000 calls cancelled; the network flaps and is slow, the store full
  long    200,000 requests in 30 minutes, 20 processes of 10 workers, 5 producers; a worker killed
          every 2 s, the server every 15 s, everything every 60 s; 5 minutes of flapping, one of
          replies 50 ± 50 ms late, 5 % of the replies lost, 1 % of the requests poison
  soak    150,000 requests in an hour (--minutes for a night or less), 6 processes of 10 workers of
          which 2 are left alone, 2 producers; kills, outages, a full store, flapping and slowness
          meanwhile: who lives long has no more memory and files at the end than after it warmed up
  scale   1,000,000 queued; 1,000 workers in one process, then 20 processes and a kill a second
  poison  12,000 requests without poison, and with some: what it costs the others

exit codes:
  0  everything held
  1  a promise was broken; what and how is on the screen, and --keep keeps the ledgers
  2  bad usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    teller = Teller()
    if options.again is not None:
        for folder in options.again:
            close_again(folder, teller)
        return _conclude(options, teller, "")
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    for store in ("redis", "sqlite") if options.store == "both" else (options.store,):
        _run(options, store, seed, teller)
    return _conclude(options, teller, f"; again: --seed {seed}")


def _conclude(options: argparse.Namespace, teller: Teller, hint: str) -> int:
    if options.json is not None:
        teller.evidence.save(options.json)
    rest = f", without {', '.join(teller.left_out)}" if teller.left_out else ""
    print(f"HELD{rest}" if not teller.broken else f"BROKEN: {len(teller.broken)}{hint}")
    return BROKEN if teller.broken else HELD


def _run(options: argparse.Namespace, store: str, seed: int, teller: Teller) -> None:
    with _folder(options.keep, store) as folder:
        _run_tier(options, store, seed, folder, teller)


def _run_tier(
    options: argparse.Namespace, store: str, seed: int, folder: Path, teller: Teller
) -> None:
    tier = _chosen(options)
    try:
        if tier.name == "scale":
            outcome, scale = asyncio.run(conduct_scale(tier, store, seed, folder))
            tell(outcome, lambda: show_scale(outcome, scale, teller.show), teller)
        elif tier.name == "poison":
            outcome, share = asyncio.run(conduct_poison(tier, store, seed, folder))
            tell(outcome, lambda: show_poison(outcome, share, teller.show), teller)
        else:
            outcome = asyncio.run(conduct(tier, store, seed, folder))
            tell(outcome, Figures(outcome, teller.show).all, teller)
    except Exception as error:  # noqa: BLE001 - the run itself failed, whatever the reason
        teller.complain(f"the run on {store} did not come to its end: {error!r}")


def _chosen(options: argparse.Namespace) -> Tier:
    tier: Tier = _TIERS[options.tier]
    if options.requests is not None:
        tier = tier.of(options.requests)
    return tier if options.minutes is None else tier.lasting(options.minutes)


@contextmanager
def _folder(keep: Path | None, store: str) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            yield Path(folder)
        return
    kept = keep.absolute() / store
    kept.mkdir(parents=True)
    yield kept


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Kill, cut off and fill up a queue's processes and its store; then see that "
        "every request that was accepted is settled, dead or queued, once, and that all calls "
        "together are a history that can be.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tier", choices=tuple(_TIERS), default="short")
    parser.add_argument("--store", choices=("redis", "sqlite", "both"), default="both")
    parser.add_argument("--seed", type=int, help="as it was printed, to do the same again")
    parser.add_argument("--minutes", type=_minutes, help="another length, at the same pressure")
    parser.add_argument("--requests", type=_requests, help="another number of requests (scale)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep ledgers in a new folder")
    parser.add_argument(
        "--again", type=_kept, metavar="DIR", help="close the account of a kept run; run nothing"
    )
    return parser


def _kept(text: str) -> list[Path]:
    folders = kept_in(Path(text))
    if not folders:
        raise argparse.ArgumentTypeError(f"no run that came to its end was kept in {text}")
    return folders


def _requests(text: str) -> int:
    count = int(text)
    if not 1_000 <= count <= 10**8:
        raise argparse.ArgumentTypeError("from 1,000 to 100,000,000")
    return count


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0.1 <= minutes <= 24 * 60:
        raise argparse.ArgumentTypeError("from 0.1 to 1440")
    return minutes


if __name__ == "__main__":
    sys.exit(main())
