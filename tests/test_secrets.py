"""Secrets of every kind the product takes, used everywhere at once: none is ever seen again.

They are searched for in logs down to DEBUG, events, errors with all that is behind them, dead
letters, reprs, the index, and everything that the command line prints. What is looked at is what
people see: a store holds requests as they are, and says so in docs/security.md.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from data_fetcher_core.core import Entry, FetchPlan, FetchRunContext, RequestMeta
from data_fetcher_core.errors import DataFetcherError
from data_fetcher_core.events import Event, log_event
from data_fetcher_core.fetcher import Fetcher
from data_fetcher_core.fetcher.options import FetcherOptions
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.queue import KVStoreQueue, QueueOptions, RequestMetaSerializer
from data_fetcher_core.recipes import Scope, crawl_recipe
from data_fetcher_core.storage.factory import create_storage
from data_fetcher_core.storage.files import FileStorage
from tests.canaries import everything_said, hits
from tests.cli_support import Done, call, cli
from tests.conftest import StartRedis
from tests.evidence import Evidence
from tests.servers import free_port
from tests.web import Proxy, Site, answer, redirect, reset, silent

SECRETS = {
    kind: f"c4n4ry-{kind}-0123456789abcdef"
    for kind in ("user", "url", "bearer", "cookie", "key", "proxy", "redis", "s3", "tls", "link")
}
ACCESS_KEY = "AKIAC4N4RYC4N4RY"


class Heard:
    """Everything that was said, from wherever."""

    def __init__(self, caplog: pytest.LogCaptureFixture | Logged) -> None:
        self._caplog = caplog
        self._said: list[str] = []
        self.looked_at = 0

    def __call__(self, *said: Any) -> None:
        for one in said:
            self._said.append(everything_said(one) if isinstance(one, BaseException) else f"{one}")
            self._said.append(repr(one))
        self.looked_at += len(said)

    def found(self) -> list[str]:
        text = "\n".join([*self._said, self._caplog.text])
        return hits(text, [*SECRETS.values(), ACCESS_KEY])


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[Heard]:
    caplog.set_level(logging.DEBUG)
    heard = Heard(caplog)
    yield heard
    assert heard.found() == []


def credentials(host: str) -> str:
    return f"{SECRETS['user']}:{SECRETS['url']}@{host}"


def answers(port: int) -> dict[str, Any]:
    """A site that fails in many ways, and quotes what it was sent."""
    echo = f"{SECRETS['url']} {SECRETS['bearer']}"
    linked = f"http://u:{SECRETS['link']}@127.0.0.1:{port}"
    links = "".join(f"<a href='{linked}/{path}'>" for path in ("500", "reset", "slow", "away", "x"))
    return {
        "/": answer(links.encode(), content_type="text/html"),
        "/500": answer(status=500, x_echo=echo, www_authenticate=echo),
        "/reset": reset,
        "/slow": silent,
        "/away": redirect(f"ftp://u:{SECRETS['link']}@host/"),
        "/x": redirect(f"http://u:{SECRETS['link']}@127.0.0.1:{free_port()}/"),
    }


# --- the library ---------------------------------------------------------------------------------


async def test_a_run_tells_no_secret(tmp_path: Path, heard: Heard, shows: Evidence) -> None:
    options = HttpOptions(
        headers={
            "Authorization": f"Bearer {SECRETS['bearer']}",
            "Cookie": f"session={SECRETS['cookie']}",
            "X-Api-Key": SECRETS["key"],
        },
        allow_private=True,
        obey_robots=False,
        timeout=0.5,
    )
    loader, store = HttpLoader(options), create_kv_store("memory")
    told: list[Event] = []

    def tell(event: Event) -> None:
        told.append(event)
        log_event(event)

    async with Site() as site:
        site.answers = answers(site.port)
        recipe = crawl_recipe(
            f"http://{credentials(f'127.0.0.1:{site.port}')}/", loader, scope=Scope()
        )
        storage = FileStorage(tmp_path)
        context = FetchRunContext("secrets", SimpleNamespace(kv_store=store, storage=storage))
        fetcher = Fetcher(FetcherOptions(queue=QueueOptions(max_attempts=1)), subscriber=tell)
        plan = FetchPlan(recipe, context, 4)
        result = await fetcher.run(plan)
        await storage.close()
        assert site.asked[0].headers["authorization"].startswith("Basic ")
        assert any(SECRETS["key"] == asked.headers.get("x-api-key") for asked in site.asked)
    heard(options, loader, result, *result.errors, *told, recipe, plan, storage, store)
    # The pages beside it are what the site sent, byte for byte.
    heard((tmp_path / "index.jsonl").read_text(), (tmp_path / "run.json").read_text())
    queue = KVStoreQueue(store, "fetch:secrets", RequestMetaSerializer(), subscriber=tell)
    letters = [letter async for letter in queue.dead_letters()]
    assert len(letters) >= 4
    heard(queue, *letters, *(failure for letter in letters for failure in letter.failures))
    await queue.requeue()
    for lease in await queue.lease(9):
        heard(lease, lease.item, lease.failures)
        await lease.bury(error=ConnectionError("gone"))
    heard(*[letter async for letter in queue.dead_letters()])
    await queue.close()
    shows("F64", "things said by a run and searched", heard.looked_at, at_least=40)
    shows(
        "F64",
        "secrets in logs, events, errors, letters, reprs, index",
        len(heard.found()),
        exactly=0,
    )


def test_a_request_shows_nothing_secret(heard: Heard) -> None:
    headers = {"Authorization": SECRETS["bearer"], "X-Api-Key": SECRETS["key"]}
    request = RequestMeta(f"http://{credentials('h')}/x", headers=headers)
    assert "http://h/x" in repr(request)
    assert "Authorization" in repr(request)
    heard(request, Entry(request), [request], RequestMetaSerializer())


async def test_a_store_tells_no_secret(
    start_redis: StartRedis, tmp_path: Path, heard: Heard
) -> None:
    server = start_redis(requirepass="another")
    where, secret = f"127.0.0.1:{server.port}", SECRETS["redis"]
    key = tmp_path / "key.pem"  # where it is may be told, and what it holds may not
    key.write_text(f"-----BEGIN PRIVATE KEY-----\n{SECRETS['tls']}\n-----END PRIVATE KEY-----\n")
    for url in (
        f"redis://:{secret}@{where}/0",
        f"redis://{SECRETS['user']}:{secret}@{where}/0",
        f"redis://127.0.0.1:{free_port()}/0?password={secret}",
        f"redis+cluster://:{secret}@{where}",
        f"rediss://:{secret}@{where}/0?ssl_keyfile={key}&ssl_certfile={key}",
        f"unix://{tmp_path}/no.sock?password={secret}",
    ):
        store = create_kv_store(url)
        heard(store)
        heard(await raised(store.put("key", 1)))
        queue = KVStoreQueue(store, "fetch:secrets", options=QueueOptions(op_timeout=0.3))
        heard(queue, await raised(queue.enqueue(["item"])))
        await store.close()


async def test_a_bucket_tells_no_secret(heard: Heard) -> None:
    for endpoint in (f"http://127.0.0.1:{free_port()}", "http://nobody.invalid"):
        storage = create_storage(
            "s3://bucket/prefix",
            endpoint=endpoint,
            region="us-east-1",
            access_key=ACCESS_KEY,
            secret_key=SECRETS["s3"],
            allow_http=True,
        )
        assert storage is not None
        heard(storage)
        async with asyncio.timeout(20):
            heard(await raised(storage.bind("run")))
        await storage.close()


async def raised(doing: Awaitable[Any]) -> DataFetcherError:
    with pytest.raises(DataFetcherError) as caught:
        await doing
    return caught.value


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS["s3"])
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def traced(*words: Any) -> Done:
    """With ``--debug`` a traceback is what was asked for."""
    try:
        return await cli(*words)
    except AssertionError as error:
        assert "--debug" in words
        return Done(2, "", str(error))


VIEWS = (("--view", "lines"), ("--log-json",), ("--view", "live"), ("--json", "--debug"))


async def test_the_command_line_tells_no_secret(
    home: Path, start_redis: StartRedis, heard: Heard, shows: Evidence
) -> None:
    """Everything at once: a store with a password, a proxy, headers, URLs."""
    server = start_redis(requirepass=SECRETS["redis"])
    store = ("--store", server.url)
    async with Site() as site, Proxy({f"127.0.0.1:{site.port}": site.port}) as proxy:
        site.answers = answers(site.port)
        start = f"http://{credentials(f'127.0.0.1:{site.port}')}/"
        for number, view in enumerate(VIEWS):
            words = ("crawl", start, "--run-id", f"r{number}", "--out", home / f"pages{number}")
            done = await traced(*words, *sent(proxy), *store, *view)
            assert done.code == 3, done
            heard(done.out, done.err, (home / f"pages{number}" / "index.jsonl").read_text())
        assert any("proxy-authorization" in asked.headers for asked in proxy.asked)
        assert any("authorization" in asked.headers for asked in site.asked)
        # A bucket that is away: where its credentials come from is the environment.
        heard(*vars(await traced("crawl", start, "--out", "s3://away/x", *sent(proxy))).values())
    for looking in looks("r0"):
        heard(*vars(await traced(*looking, *store)).values())
    shows("F64", "secrets in what the command line prints", len(heard.found()), exactly=0)


def sent(proxy: Proxy) -> tuple[object, ...]:
    return (
        *("--header", f"Authorization: Bearer {SECRETS['bearer']}"),
        *("--header", f"Cookie: session={SECRETS['cookie']}"),
        *("--proxy", f"http://u:{SECRETS['proxy']}@127.0.0.1:{proxy.port}"),
        *("--allow-private", "--ignore-robots", "--retries", 0, "--timeout", 0.5),
    )


def looks(run: str) -> Iterator[tuple[str, ...]]:
    """Every command that only tells, in both forms; and some that go wrong."""
    told: list[tuple[str, ...]] = [("runs",), ("status", run), ("dead", "list", run), ("doctor",)]
    for words in told:
        yield words
        yield (*words, "--json")
        yield (*words, "--debug")
    yield ("dead", "requeue", run, "--all", "--json")
    yield ("resume", run, "--json", "--debug")
    yield ("crawl", f"http://{credentials('127.0.0.1:9')}/other", "--run-id", run, "--debug")
    yield ("forget", run, "--yes", "--json")


@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["plain", "debug"])
def test_a_store_that_cannot_be_had_is_told_without_its_password(
    home: Path, heard: Heard, debug: tuple[str, ...]
) -> None:
    for where in (f"127.0.0.1:{free_port()}", "nobody.invalid", "127.0.0.1:x"):
        try:
            done = call("runs", "--store", f"redis://:{SECRETS['redis']}@{where}/0", *debug)
        except AssertionError as error:
            done = Done(2, "", str(error))
        heard(done.out, done.err)


class Logged(NamedTuple):
    text: str = ""


def test_the_search_finds_what_there_is() -> None:
    coded = base64.b64encode(credentials("").encode()).decode()
    for said in (ValueError(SECRETS["url"]), {"a": SECRETS["cookie"]}, f"Basic {coded}"):
        heard = Heard(Logged())
        heard(said)
        assert heard.found(), said
    assert Heard(Logged(f"logged {SECRETS['tls']}")).found()
