"""What goes wrong outside becomes an error of ours that says what happened, and no secrets."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from data_fetcher_core.core import RequestMeta
from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    FetchError,
    OutOfResources,
    ValidationError,
)
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.loader.failures import fetch_error
from tests.evidence import Evidence
from tests.properties import quick
from tests.tls import Authority, make_authority
from tests.web import (
    HEAD,
    Asked,
    Behaviour,
    Listener,
    Load,
    Names,
    Site,
    answer,
    loading,
    redirect,
    reset,
    sending,
)


async def failure(load: Load, url: str, **given: Any) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await load(url, **given)
    return caught.value


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


# --- the network --------------------------------------------------------------------------------


async def reset_in_the_body(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Hangs up on a body whose end nobody was told."""
    writer.write(HEAD + b"\r\nhalf a bo")
    await writer.drain()
    await asyncio.sleep(0.05)
    await reset(asked, writer)


BROKEN: dict[str, tuple[Behaviour, str]] = {
    "reset": (reset, "lost"),
    "closed": (sending(), "without an answer"),
    "reset in the body": (reset_in_the_body, "broke off"),
    "half a head": (sending(b"HTTP/1.1 200 OK\r\nContent-"), ""),
    "no HTTP": (sending(b"220 mail.example.org ESMTP\r\n\r\n"), "can be read"),
    "TLS": (sending(b"\x15\x03\x01\x00\x02\x02\x46"), "can be read"),
    "short": (sending(HEAD + b"Content-Length: 9\r\n\r\nshort"), "broke off"),
    "chunks": (sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"), "broke off"),
    "bad chunks": (sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc"), ""),
    "bad length": (sending(HEAD + b"Content-Length: -5\r\n\r\nabc"), "can be read"),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_what_breaks_is_tried_again(kind: str) -> None:
    behaviour, told = BROKEN[kind]
    async with Site({"/": behaviour}) as site, loading() as load:
        error = await failure(load, site.url())
    assert error.retryable
    assert told in str(error)
    assert str(error).startswith(site.url() + ": ")


async def test_a_body_longer_than_told_is_a_lie() -> None:
    lie = HEAD + b"Content-Length: 5\r\n\r\nhello, and more"
    async with Site({"/": lie}) as site, loading() as load:
        assert (await failure(load, site.url())).retryable


async def test_an_answer_nobody_asked_for_answers_nothing() -> None:
    two = answer(b"first") + answer(b"smuggled")
    async with Site({"/": two, "/next": answer(b"next")}) as site, loading() as load:
        assert (await load(site.url())).body == b"first"
        assert (await load(site.url("/next"))).body == b"next"


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with Site({"/": sending(HEAD + b"\r\n", b"all ", b"of it")}) as site, loading() as load:
        assert (await load(site.url())).body == b"all of it"


async def test_nobody_listens() -> None:
    async with loading() as load:
        error = await failure(load, f"http://127.0.0.1:{free_port()}/")
    assert error.retryable
    assert "cannot be connected to" in str(error)


async def test_nobody_has_that_name() -> None:
    async with loading(resolver=Names({})) as load:
        error = await failure(load, "http://nobody.example.org/")
    assert error.retryable
    assert "name cannot be resolved (Name or service not known)" in str(error)


async def test_nobody_answers_the_call() -> None:
    """A listener whose backlog is full takes no more connections."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        async with loading(connect_timeout=0.2) as load:
            error = await failure(load, f"http://127.0.0.1:{address[1]}/")
        for filler in fillers:
            filler.close()
    assert error.retryable
    assert "in time" in str(error)


# --- TLS ----------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path)


async def test_a_trusted_certificate(authority: Authority) -> None:
    context = authority.server_context("localhost")
    async with (
        Site({"/": answer(b"safe")}, context=context) as site,
        loading(ca_file=str(authority.ca_file)) as load,
    ):
        assert (await load(site.url("/", host="localhost"))).body == b"safe"


@pytest.mark.parametrize("flaw", ["unknown", "expired", "other host"])
async def test_a_certificate_that_is_not_valid(
    authority: Authority, flaw: str, shows: Evidence
) -> None:
    context = authority.server_context(
        "example.org" if flaw == "other host" else "localhost", expired=flaw == "expired"
    )
    trusted = None if flaw == "unknown" else str(authority.ca_file)
    async with Site({"/": answer()}, context=context) as site, loading(ca_file=trusted) as load:
        error = await failure(load, site.url("/", host="localhost"))
    assert not error.retryable
    assert "certificate is not valid" in str(error)
    shows("F65", "pages asked of a site with a bad certificate", len(site.asked), exactly=0)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("newest", ["TLSv1", "TLSv1_1"])
async def test_a_site_that_speaks_an_outdated_tls(
    authority: Authority, newest: str, shows: Evidence
) -> None:
    context = authority.outdated_context("localhost", ssl.TLSVersion[newest])
    async with (
        Site({"/": answer()}, context=context) as site,
        loading(ca_file=str(authority.ca_file)) as load,
    ):
        error = await failure(load, site.url("/", host="localhost"))
    assert error.retryable
    shows("F65", "pages asked of a site with an outdated TLS", len(site.asked), exactly=0)


class Greeter(Listener):
    """Speaks first, and no TLS."""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n")
        await reader.read()


async def test_a_server_that_speaks_no_tls() -> None:
    async with Greeter() as greeter, loading() as load:
        error = await failure(load, f"https://127.0.0.1:{greeter.port}/")
    assert error.retryable
    assert "TLS failed" in str(error)


# --- URLs ---------------------------------------------------------------------------------------

NO_PAGES = [
    "", "/", "#fragment", "//", "file:///etc/passwd", "ftp://example.org/", "javascript:alert(1)",
    "data:text/html,x", "mailto:a@example.org", "http:", "http://", "http:///path", "https://?q",
    "//example.org/x", "http://exa mple.org/", "http://a\0b/", "http://a\tb\x7f/", "ws://example.org/",
    "http://%31%32%37.0.0.1/", "http://ex%ample.org/", "http://<script>/", "http://../",
    "HTTP+unix://%2Fsock/", "about:blank", "http://" + "a" * 300 + ".org/",
    "http://" + "a." * 200 + "org/",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_PAGES)
async def test_what_is_no_page_is_not_asked_for(text: str) -> None:
    try:
        request = RequestMeta(text)
    except ValidationError:
        return
    async with loading(resolver=Names({}), obey_robots=True) as load:
        with pytest.raises(FetchError) as caught:
            await load(request.url)
    # Names that nobody has could be somebody's tomorrow.
    assert not caught.value.retryable or "resolved" in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "path", ["/%7euser/%7E", "/a b", "/ü?ü=ü", "/a//b/../c", "/?", "/" + "x" * 100_000]
)
async def test_odd_paths_are_asked_for(path: str) -> None:
    async with Site(otherwise=answer(b"here")) as site, loading() as load:
        assert (await load(site.url(path))).body == b"here"


async def test_a_name_of_another_script() -> None:
    names = Names({"xn--bcher-kva.example.org": ["127.0.0.1"]})
    async with Site({"/": answer(b"here")}) as site, loading(resolver=names) as load:
        page = await load(site.url("/", host="bücher.example.org"))
    assert page.body == b"here"
    assert site.asked[0].headers["host"] == f"xn--bcher-kva.example.org:{site.port}"


@quick(100)
@given(st.text(max_size=40), st.text(max_size=20))
def test_no_url_raises_what_is_not_ours(host: str, path: str) -> None:
    async def attempt() -> None:
        try:
            request = RequestMeta(f"http://{host}/{path}")
        except ValidationError:
            return
        loader = HttpLoader(HttpOptions(), resolver=Names({}))
        try:
            await loader.load(request, None, None, None)  # type: ignore[arg-type]
        except DataFetcherError:
            pass
        finally:
            await loader.close()

    asyncio.run(attempt())


# --- secrets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behaviour", [answer(b"", 503), reset, redirect("ftp://u:s3cret@h/"), redirect("/"), sending()]
)
async def test_no_error_tells_a_secret(behaviour: Any) -> None:
    async with Site(otherwise=behaviour) as site, loading() as load:
        error = await failure(
            load,
            site.url("/", host="me:s3cret@127.0.0.1"),
            headers={"Authorization": "s3cret", "X-Key": "s3cret"},
        )
    assert "s3cret" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "url",
    ["http://me:s3cret@nobody.example.org/", "ftp://me:s3cret@h/", "http://me:s3cret@a b/",
     "http://me:s3cret@127.0.0.1:1/", "http://me:s3cret@2130706433/"],
)  # fmt: skip
async def test_no_url_tells_a_secret(url: str) -> None:
    async with loading(resolver=Names({}), allow_private=False) as load:
        error = await failure(load, url)
    assert "s3cret" not in "".join(traceback.format_exception(error))


# --- the mapping --------------------------------------------------------------------------------


def test_an_unknown_error_is_told_by_its_kind() -> None:
    error = fetch_error(URL("http://example.org/"), OSError(28, "No space left on device"))
    assert str(error) == "http://example.org/: OSError: No space left on device"
    assert isinstance(error, FetchError)
    assert error.retryable


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_no_host_is_to_blame_for_files_that_we_lack(number: int) -> None:
    error = fetch_error(URL("http://example.org/"), OSError(number, "no more"))
    assert isinstance(error, OutOfResources)
    assert "ulimit" in str(error)


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0), ("timeout", -1), ("timeout", float("nan")), ("timeout", float("inf")),
        ("timeout", "5"), ("timeout", True), ("connect_timeout", 0), ("connect_timeout", None),
        ("max_size", 0), ("max_size", -1), ("max_size", 1.5), ("max_size", "5"), ("max_size", True),
        ("max_size", 2**63), ("max_header_size", 10), ("max_redirects", -1), ("keep_body", -1),
        ("connections", -1), ("connections", None), ("follow_redirects", 1),
        ("allow_private", "no"), ("obey_robots", None), ("trust_env", 0), ("user_agent", ""),
        ("user_agent", " "), ("user_agent", "a\r\nb: c"), ("user_agent", None),
        ("headers", {"a b": "c"}), ("headers", {"a": "b\n"}), ("headers", {"a": None}),
        ("headers", [("a", "b")]), ("headers", None), ("allow_networks", ["10.0.0.1/8"]),
        ("allow_networks", ["x"]), ("allow_networks", "10.0.0.0/8"), ("allow_networks", None),
        ("ca_file", "/does/not/exist"),
    ],
)  # fmt: skip
def test_options_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        HttpOptions(**{name: value})


@pytest.mark.parametrize(
    "proxy", ["", "proxy:3128", "socks5://me:s3cret@h", "http://", "me:s3cret@h", 5]
)
def test_proxies_that_cannot_be(proxy: Any) -> None:
    with pytest.raises(ConfigurationError, match="proxy") as caught:
        HttpOptions(proxy=proxy)
    assert "s3cret" not in str(caught.value)


def test_a_file_that_holds_no_certificates(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    options = HttpOptions(ca_file=str(tmp_path / "ca.pem"))
    with pytest.raises(ConfigurationError, match=r"ca\.pem"):
        HttpLoader(options)


def test_options_do_not_change() -> None:
    headers = {"A": "1"}
    options = HttpOptions(headers=headers)
    headers["A"] = "2"
    assert options.headers == {"A": "1"}
    assert options == HttpOptions(headers={"A": "1"})
