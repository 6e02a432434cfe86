"""The account, as a person reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from data_fetcher_core.cli.demo.account import Account
from data_fetcher_core.cli.view import figures


def lines(account: Account) -> Iterator[str]:
    for name, value, remark in _rows(account):
        yield f"  {name:<22}{value:>8}  {remark}".rstrip()
    for fault in account.wrong:
        yield f"  WRONG: {fault}"
    yield (
        f"lost {len(account.lost)}, fetched again {account.fetched_again} "
        f"({_bound(account)}), {figures.duration(account.seconds)}"
    )


def _rows(account: Account) -> Iterator[tuple[str, str, str]]:
    yield "pages on the site", figures.count(account.pages), ""
    yield "pages in index.jsonl", figures.count(account.indexed), ""
    yield "digests checked", figures.count(account.checked), "site, index and file agree"
    yield "kills", figures.count(account.kills), _flights(account)
    yield "finished, then again", figures.count(len(account.finished_again)), ""


def _flights(account: Account) -> str:
    if not account.kills:
        return ""
    return f"with {' + '.join(map(str, account.in_flight))} pages in flight"


def _bound(account: Account) -> str:
    most = sum(account.in_flight)
    return f"at most {most} {'was' if most == 1 else 'were'} in flight when it was killed"
