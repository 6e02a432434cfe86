"""robots.txt by RFC 9309: asked for once, obeyed, and survived whatever it holds."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.errors import (
    FetchError,
    Postponed,
    Skipped,
    StoreUnavailable,
)
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.loader.robots_cache import RulesInMemory
from data_fetcher_core.loader.robots_rules import (
    LONGEST,
    RobotsRules,
    addressed_to,
    text_of,
    token_of,
)
from tests.properties import quick
from tests.web import (
    HEAD,
    MIB,
    Answer,
    Asked,
    Load,
    Site,
    answer,
    dripping,
    gzip_bomb,
    loading,
    redirect,
    reset,
    sending,
    silent,
)

FORBIDDING = b"User-agent: *\nDisallow: /private\nAllow: /private/open\nDisallow: /*.pdf$\n"


def site_with(robots: Answer, **pages: Answer) -> Site:
    return Site({"/robots.txt": robots, **pages}, otherwise=answer(b"page"))


def obeying(**given: Any) -> Any:
    return loading(**{"obey_robots": True, **given})


async def failure(load: Load, url: str) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await load(url)
    return caught.value


async def is_allowed(load: Load, url: str) -> bool:
    try:
        await load(url)
    except Skipped:
        return False
    return True


# --- what is allowed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/", True), ("/private", False), ("/private/x?y", False), ("/private/open/a", True),
     ("/a.pdf", False), ("/a.pdf?x", True), ("/Private", True), ("/%70rivate", False),
     ("/robots.txt", True)],
)  # fmt: skip
async def test_rules_are_obeyed(path: str, allowed: bool) -> None:
    async with site_with(answer(FORBIDDING)) as site, obeying() as load:
        assert await is_allowed(load, site.url(path)) == allowed
        assert (path in [asked.target for asked in site.asked]) == allowed


async def test_what_is_forbidden_is_skipped_and_says_so() -> None:
    async with site_with(answer(FORBIDDING)) as site, obeying() as load:
        error = await failure(load, site.url("/private"))
    assert isinstance(error, Skipped)
    assert not error.retryable
    assert "robots.txt forbids it" in str(error)
    assert site.paths == ["/robots.txt"]


async def test_rules_may_be_ignored() -> None:
    async with site_with(answer(FORBIDDING)) as site, loading(obey_robots=False) as load:
        await load(site.url("/private"))
    assert site.paths == ["/private"]


async def test_robots_themselves_are_always_allowed() -> None:
    text = b"User-agent: *\nDisallow: /\nCrawl-delay: 9"
    async with site_with(answer(text)) as site, obeying() as load:
        assert (await load(site.url("/robots.txt"))).body == text
    assert site.paths == ["/robots.txt"]


async def test_our_own_name_is_known() -> None:
    text = b"User-agent: *\nDisallow: /\n\nUser-agent: MyBot\nDisallow: /no\n"
    async with site_with(answer(text)) as site:
        async with obeying(user_agent="mybot/2.0 (+https://example.org)") as load:
            assert await is_allowed(load, site.url("/"))
            assert not await is_allowed(load, site.url("/no"))
        async with obeying(user_agent="otherbot") as load:
            assert not await is_allowed(load, site.url("/"))


# --- what an answer means -----------------------------------------------------------------------

EVERYTHING = {
    "400": answer(FORBIDDING, 400),
    "401": answer(FORBIDDING, 401),
    "403": answer(FORBIDDING, 403),
    "404": answer(FORBIDDING, 404),
    "410": answer(FORBIDDING, 410),
    "empty": answer(b""),
    "204": answer(b"", 204),
    "html": answer(b"<html>Disallow: /</html>", content_type="text/html"),
    "binary": answer(bytes(range(256)) * 100),
    "no group": answer(b"Disallow: /\n"),
    "circle": redirect("/robots.txt"),
    "to nowhere": redirect("http://[::bad"),
    "to a file": redirect("file:///etc/passwd"),
    "302 without target": answer(FORBIDDING, 302),
}


@pytest.mark.parametrize("kind", EVERYTHING)
async def test_everything_is_allowed(kind: str) -> None:
    async with site_with(EVERYTHING[kind]) as site, obeying() as load:
        assert await is_allowed(load, site.url("/private"))


NOTHING: dict[str, Answer] = {
    "500": answer(FORBIDDING, 500),
    "503": answer(FORBIDDING, 503, retry_after="120"),
    "429": answer(FORBIDDING, 429, retry_after="120"),
    "reset": reset,
    "cut": sending(HEAD + b"Content-Length: 99\r\n\r\nUser-agent: *"),
    "silent": silent,
    "drip": dripping(HEAD + b"\r\n"),
    "no gzip": answer(b"Disallow: /", content_encoding="gzip"),
}


@pytest.mark.parametrize("kind", NOTHING)
async def test_nothing_is_allowed_for_now(kind: str) -> None:
    async with site_with(NOTHING[kind]) as site, obeying(timeout=0.3) as load:
        error = await failure(load, site.url("/"))
        assert error.retryable
        assert not isinstance(error, Skipped | Postponed)
        assert str(error).startswith("robots.txt is unavailable: ")
        assert error.retry_after == (120 if kind in {"503", "429"} else None)
        assert "/" not in site.paths
        site.answers["/robots.txt"] = answer(status=404)
        assert (await load(site.url("/"))).body == b"page"


async def test_redirects_of_robots_are_followed_five_times() -> None:
    for hops, allowed in [(5, False), (6, True)]:
        answers = {f"/r{n}": redirect(f"/r{n + 1}") for n in range(1, hops)}
        async with Site(answers, otherwise=answer(b"page")) as site, obeying() as load:
            site.answers["/robots.txt"] = redirect("/r1")
            site.answers[f"/r{hops}"] = answer(FORBIDDING)
            assert await is_allowed(load, site.url("/private")) == allowed


async def test_robots_may_be_at_another_host() -> None:
    async with Site({"/r": answer(FORBIDDING)}) as other, Site() as site:
        site.answers["/robots.txt"] = redirect(other.url("/r"))
        async with obeying() as load:
            assert not await is_allowed(load, site.url("/private"))
    assert other.paths == ["/r"]


# --- odd files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + FORBIDDING,
        FORBIDDING.replace(b"\n", b"\r\n"),
        FORBIDDING.replace(b"\n", b"\r"),
        b"# \xff\xfe\n" + FORBIDDING,
        b"\0\n" + FORBIDDING,
        FORBIDDING + b"Disallow: /" + b"x" * 100_000,
        FORBIDDING + b"\n" + b"User-agent: *\nAllow: /x\n" * 20_000,
    ],
)
async def test_odd_files_are_read(text: bytes) -> None:
    async with site_with(answer(text)) as site, obeying() as load:
        assert not await is_allowed(load, site.url("/private"))
        assert await is_allowed(load, site.url("/"))


async def test_ten_megabytes_are_read_in_part() -> None:
    text = FORBIDDING + b"# filler\n" * (10 * MIB // 9) + b"User-agent: *\nDisallow: /\n"
    async with site_with(answer(text)) as site, obeying() as load:
        assert not await is_allowed(load, site.url("/private"))
        assert await is_allowed(load, site.url("/"))


@pytest.mark.parametrize("kind", ["plain", "gzip"])
async def test_a_file_without_end_is_read_in_part(kind: str) -> None:
    filler = itertools.repeat(b"# filler\n" * 5_000)
    endless = {"plain": sending(HEAD + b"\r\n" + FORBIDDING, filler), "gzip": gzip_bomb()}[kind]
    async with site_with(endless) as site, obeying() as load:
        assert await is_allowed(load, site.url("/private")) == (kind == "gzip")
        assert await is_allowed(load, site.url("/"))


def test_a_line_that_was_cut_is_no_rule() -> None:
    text = b"User-agent: *\n" + b"#" * (LONGEST - 14 - 12) + b"\nDisallow: /private"
    assert text[:LONGEST].endswith(b"\nDisallow: /")
    assert "Disallow" not in text_of(text)
    assert RobotsRules("bot", text_of(text)).allow("http://example.org/")


def test_a_file_of_just_the_most_bytes_counts_whole() -> None:
    rule = b"User-agent: *\nDisallow: /private"
    assert text_of(b"#" * (LONGEST - len(rule) - 1) + b"\n" + rule).endswith(rule.decode())


def test_many_names_above_many_rules_are_not_multiplied() -> None:
    """A parser that gave each name its rules would need all the memory there is."""
    names = "".join(f"User-agent: bot{number}\n" for number in range(12_000))
    rules = "".join(f"Disallow: /{number}\n" for number in range(15_000))
    reduced = addressed_to("me", names + "User-agent: me\n" + names + rules)
    assert len(reduced.splitlines()) == 15_001
    assert not RobotsRules("me", reduced).allow("http://example.org/14999")


def test_rules_full_of_wildcards_are_matched_in_a_moment() -> None:
    text = "User-agent: *\nDisallow: /" + "*a" * 200_000 + "b\n"
    assert RobotsRules("me", text).allow("http://example.org/" + "a" * 10_000)


# --- whom it speaks to --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("User-agent: x\nDisallow: /\n", ""),
        ("User-agent: x\nUser-agent: ME\nDisallow: /\n", "User-agent: ME\nDisallow: /"),
        ("User-agent: me\nUser-agent: x\nDisallow: /\n", "User-agent: me\nDisallow: /"),
        ("User-agent: me # us\nAllow: /\nUser-agent: x\nDisallow: /",
         "User-agent: me # us\nAllow: /"),
        ("User-agent: x\nDisallow: /\nSitemap: s\nUser-agent: *\nAllow: /",
         "User-agent: *\nAllow: /"),
        ("user agent me\nDisallow /\n", "user agent me\nDisallow /"),
        ("User-agent: me\n\n# note\nDisallow: /a\n", "User-agent: me\nDisallow: /a"),
        ("User-agent: me\nSitemap: s\nUser-agent: x\nDisallow: /a",
         "User-agent: me\nDisallow: /a"),
    ],
)  # fmt: skip
def test_only_what_is_for_us_is_kept(text: str, kept: str) -> None:
    assert addressed_to("me", text) == kept


LINES = st.sampled_from(
    ["User-agent: me", "User-agent: *", "User-agent: x", "User-Agent: y", "Disallow: /a",
     "Allow: /a/b", "Disallow: /", "Crawl-delay: 3", "Sitemap: /s", "", "# note", "Other: 1"]
)  # fmt: skip


@quick(100)
@given(st.lists(LINES, max_size=12))
def test_leaving_out_what_is_for_others_changes_nothing_for_us(lines: list[str]) -> None:
    text = "\n".join(lines)
    whole, reduced = RobotsRules("me", text), RobotsRules("me", addressed_to("me", text))
    for path in ("/", "/a", "/a/b", "/z"):
        url = f"http://example.org{path}"
        assert reduced.allow(url) == whole.allow(url)
    assert reduced.delay == whole.delay


@quick(100)
@given(st.binary(max_size=300))
def test_no_file_breaks_the_rules(body: bytes) -> None:
    rules = RobotsRules("me", addressed_to("me", text_of(body)))
    rules.allow("http://example.org/")
    assert 0 <= rules.delay <= 300


@pytest.mark.parametrize(
    ("agent", "token"),
    [("data-fetcher-core/0.1", "data-fetcher-core"), ("Bot", "Bot"), (" Bot /1", "Bot"),
     ("Mozilla/5.0 (compatible; x)", "Mozilla"), ("my bot/1", "my")],
)  # fmt: skip
def test_the_token_of_a_user_agent(agent: str, token: str) -> None:
    assert token_of(agent) == token


# --- asked for once -----------------------------------------------------------------------------


async def test_many_pages_ask_for_it_once() -> None:
    began = asyncio.Event()

    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        began.set()
        await asyncio.sleep(0.05)
        writer.write(answer(FORBIDDING))
        await writer.drain()

    async with site_with(slow) as site, obeying() as load, asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(load(site.url(f"/{number}")))
        await began.wait()
        group.create_task(load(site.url("/late")))
    assert site.paths.count("/robots.txt") == 1
    assert len(site.paths) == 22


async def test_who_asks_first_and_is_cancelled_leaves_it_to_the_next() -> None:
    async def once_silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if site.paths.count("/robots.txt") == 1:
            await silent(asked, writer)
        writer.write(answer(FORBIDDING))
        await writer.drain()

    async with site_with(once_silent) as site, obeying() as load, asyncio.TaskGroup() as group:
        first = group.create_task(load(site.url("/1")))
        while not site.asked:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
        others = [group.create_task(load(site.url(f"/{number}"))) for number in range(2, 6)]
        await asyncio.sleep(0)
        first.cancel()
        assert [(await other).status for other in others] == [200] * 4
    assert site.paths.count("/robots.txt") == 2


async def test_all_who_wait_hear_of_a_failure() -> None:
    async with site_with(reset) as site, obeying() as load:
        errors = await asyncio.gather(
            *(load(site.url(f"/{number}")) for number in range(5)), return_exceptions=True
        )
    assert len({id(error) for error in errors}) == 5
    assert all(isinstance(error, FetchError) and error.retryable for error in errors)


async def test_every_origin_has_its_own() -> None:
    async with (
        site_with(answer(FORBIDDING)) as one,
        site_with(answer(b"")) as two,
        obeying() as load,
    ):
        assert not await is_allowed(load, one.url("/private"))
        assert await is_allowed(load, two.url("/private"))
        assert await is_allowed(load, two.url("/private", host="localhost"))
    assert two.paths.count("/robots.txt") == 2


async def test_a_redirect_asks_the_robots_of_where_it_leads() -> None:
    async with site_with(answer(FORBIDDING)) as other, site_with(answer(b"")) as site:
        site.answers["/in"] = redirect(other.url("/private"))
        site.answers["/ok"] = redirect(other.url("/public"))
        async with obeying() as load:
            assert not await is_allowed(load, site.url("/in"))
            assert await is_allowed(load, site.url("/ok"))
    assert other.paths == ["/robots.txt", "/public"]


async def test_robots_of_another_host_hold_nobody_up() -> None:
    busy = answer(b"", 503, retry_after="99")
    async with site_with(busy) as other, site_with(answer(b"")) as site, obeying() as load:
        site.answers["/in"] = redirect(other.url("/"))
        error = await failure(load, site.url("/in"))
    assert error.retryable
    assert error.retry_after is None


# --- remembered ---------------------------------------------------------------------------------


async def test_the_store_remembers_for_others(tmp_path: Any) -> None:
    store = create_kv_store(f"sqlite:///{tmp_path / 'run.db'}")
    async with site_with(answer(FORBIDDING)) as site:
        for _ in range(2):
            async with obeying(kv_store=store) as load:
                assert not await is_allowed(load, site.url("/private"))
                assert await is_allowed(load, site.url("/"))
    await store.close()
    assert site.paths.count("/robots.txt") == 1


async def test_another_name_asks_for_itself() -> None:
    store = create_kv_store("memory")
    async with site_with(answer(b"User-agent: b\nDisallow: /\n")) as site:
        for agent, allowed in [("a/1", True), ("b/1", False), ("a/2", True)]:
            async with obeying(kv_store=store, user_agent=agent) as load:
                assert await is_allowed(load, site.url("/")) == allowed
    assert site.paths.count("/robots.txt") == 2


@pytest.mark.parametrize(
    "value",
    [None, 5, "text", [], {}, {"text": 5, "fetched_at": 0}, {"text": "x", "fetched_at": "now"},
     {"text": "User-agent: *\nDisallow: /", "fetched_at": 0},
     {"text": "#" * (LONGEST + 1), "fetched_at": 1e12}],
)  # fmt: skip
async def test_what_the_store_holds_is_not_believed_blindly(value: Any) -> None:
    store = create_kv_store("memory")
    async with site_with(answer(FORBIDDING)) as site, obeying(kv_store=store) as load:
        key = f"http://127.0.0.1:{site.port} data-fetcher-core"
        await store.put(key, value, prefix="robots")
        assert await is_allowed(load, site.url("/"))
        assert not await is_allowed(load, site.url("/private"))
    assert site.paths.count("/robots.txt") == 1


class Away:
    """A store that cannot be reached."""

    async def get(self, *_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    async def put(self, *_: Any, **__: Any) -> None:
        raise StoreUnavailable("away")


async def test_without_the_store_robots_are_asked_for() -> None:
    async with site_with(answer(FORBIDDING)) as site, obeying(kv_store=Away()) as load:
        assert await is_allowed(load, site.url("/"))
        assert not await is_allowed(load, site.url("/private"))
    assert site.paths.count("/robots.txt") == 1


def origin(number: int) -> tuple[str, str, int]:
    return ("http", "example.org", number)


def test_memory_forgets_what_was_not_asked_for_longest() -> None:
    memory = RulesInMemory(most_origins=3)
    for number in range(3):
        memory.put(origin(number), RobotsRules("me", ""), 10.0)
    assert memory.get(origin(0)) is not None
    memory.put(origin(3), RobotsRules("me", ""), 10.0)
    assert [memory.get(origin(number)) is None for number in range(4)] == [
        False,
        True,
        False,
        False,
    ]


def test_memory_holds_so_much_text() -> None:
    memory = RulesInMemory(most_text=100)
    for number in range(3):
        memory.put(origin(number), RobotsRules("me", "#" * 50), 10.0)
    memory.put(origin(1), RobotsRules("me", "#" * 50), 10.0)
    assert [memory.get(origin(number)) is None for number in range(3)] == [True, False, False]
    memory.put(origin(9), RobotsRules("me", "#" * 999), 10.0)
    assert memory.get(origin(9)) is not None
    assert memory.get(origin(2)) is None


def test_memory_forgets_what_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = RulesInMemory()
    memory.put(origin(1), RobotsRules("me", ""), 10.0)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    assert memory.get(origin(1)) is None


# --- crawl-delay --------------------------------------------------------------------------------


async def test_a_crawl_delay_is_told_once() -> None:
    async with site_with(answer(FORBIDDING + b"Crawl-delay: 2.5\n")) as site, obeying() as load:
        with pytest.raises(Postponed) as caught:
            await load(site.url("/1"))
        assert caught.value.interval == 2.5
        assert "/1" not in site.paths
        assert not await is_allowed(load, site.url("/private"))
        for path in ("/1", "/2"):
            assert (await load(site.url(path))).body == b"page"


@pytest.mark.parametrize("kept", [False, True])
async def test_a_crawl_delay_is_told_to_all_who_waited_to_hear_of_it(
    kept: bool, tmp_path: Any
) -> None:
    store = create_kv_store(f"sqlite:///{tmp_path}/robots.db")
    async with site_with(answer(b"User-agent: *\nCrawl-delay: 9")) as site:
        if kept:
            async with obeying(kv_store=store) as load:
                with pytest.raises(Postponed):
                    await load(site.url("/"))
        async with obeying(kv_store=store) as load:
            loads = (load(site.url(f"/{number}")) for number in range(12))
            found = await asyncio.gather(*loads, return_exceptions=True)
            assert [type(one) for one in found] == [Postponed] * 12
            assert site.paths == ["/robots.txt"]
            await load(site.url("/0"))
    await store.close()


async def test_a_crawl_delay_that_was_told_is_not_told_again_when_it_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a request could be put off for ever, where more hosts are asked than are remembered."""
    monkeypatch.setattr(RulesInMemory, "put", lambda *_: None)
    async with site_with(answer(b"User-agent: *\nCrawl-delay: 9")) as site, obeying() as load:
        with pytest.raises(Postponed):
            await load(site.url("/"))
        assert (await load(site.url("/"))).body == b"page"


async def test_a_crawl_delay_from_the_store_is_told_again() -> None:
    store = create_kv_store("memory")
    async with site_with(answer(b"User-agent: *\nCrawl-delay: 9")) as site:
        for _ in range(2):
            async with obeying(kv_store=store) as load:
                with pytest.raises(Postponed):
                    await load(site.url("/"))
                await load(site.url("/"))
    assert site.paths.count("/robots.txt") == 1


@pytest.mark.parametrize(
    ("said", "delay"),
    [("0", 0), ("-5", 0), ("abc", 0), ("nan", 0), ("inf", 0), ("301", 300), ("1e9", 300), ("1", 1)],
)
def test_crawl_delays(said: str, delay: float) -> None:
    assert RobotsRules("me", f"User-agent: *\nCrawl-delay: {said}").delay == delay


def test_a_crawl_delay_of_our_own_wins() -> None:
    text = "User-agent: *\nCrawl-delay: 9\nUser-agent: me\nCrawl-delay: 2"
    assert RobotsRules("me", text).delay == 2
    assert RobotsRules("you", text).delay == 9


async def test_where_a_redirect_leads_paces_nobody_else() -> None:
    async with (
        site_with(answer(b"User-agent: *\nCrawl-delay: 9")) as other,
        site_with(answer(b"")) as site,
        obeying() as load,
    ):
        site.answers["/in"] = redirect(other.url("/"))
        assert (await load(site.url("/in"))).body == b"page"
        with pytest.raises(Postponed):
            await load(other.url("/"))
