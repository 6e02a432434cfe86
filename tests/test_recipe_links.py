"""Links of a page: by tree and by scan, which agree; and nothing a page holds is too much."""

from __future__ import annotations

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from data_fetcher_core.recipes import links, links_of
from data_fetcher_core.recipes.markup import _from_scan, _from_tree, is_tame
from data_fetcher_core.recipes.off_loop import LARGE, parsed
from data_fetcher_core.recipes.tag_scan import Tag
from data_fetcher_core.recipes.web_urls import LONGEST_URL, web_url, web_url_or_none
from tests.properties import quick

PAGE = URL("http://example.org/docs/index.html?page=1")
# Too large for a tree, and nothing in it: what stands before it is scanned.
PADDING = " " * (64 * 1024)


def found(markup: str, *, nofollow: bool = True) -> list[str]:
    """The links, which are the same whether the page is small or large."""
    small, large = (
        [str(link) for link in links_of(page.encode(), PAGE, follow_nofollow=nofollow)]
        for page in (markup, markup + PADDING)
    )
    assert sorted(small) == sorted(large)
    return small


@pytest.mark.parametrize(
    ("markup", "link"),
    [
        ('<a href="a.html">', "http://example.org/docs/a.html"),
        ("<a href=/a>", "http://example.org/a"),
        ("<A HREF='/A'>", "http://example.org/A"),
        ('<a href="//other.example/x">', "http://other.example/x"),
        ('<a href="?page=2">', "http://example.org/docs/index.html?page=2"),
        ('<a href="https://example.org:8443/x">', "https://example.org:8443/x"),
        ('<a href="../../../x">', "http://example.org/x"),
        ('<a href=" \n /x\t ">', "http://example.org/x"),
        ('<a href="/a\nb">', "http://example.org/ab"),
        ('<a href="/x#part">', "http://example.org/x"),
        ('<a href="/x?a=1&amp;b=2&copy=3">', "http://example.org/x?a=1&b=2&copy=3"),
        ('<a href="/a b">', "http://example.org/a%20b"),
        ('<a href="/é">', "http://example.org/%C3%A9"),
        ('<a href="\\a\\b?c\\d">', "http://example.org/a/b?c%5Cd"),
        ('<a href="http://bücher.example/">', "http://xn--bcher-kva.example/"),
        ('<a href="http:x/y?z">', "http://example.org/docs/x/y?z"),
        ('<a href="HTTP:/x">', "http://example.org/x"),
        ('<a href="http:\\x">', "http://example.org/x"),
        ('<a href="http:?page=2">', "http://example.org/docs/index.html?page=2"),
        ('<a href="http:a:b">', "http://example.org/docs/a:b"),
        ('<a href="http:mailto:x">', "http://example.org/docs/mailto:x"),
        ('<base href="http:b/"><a href="http:x">', "http://example.org/docs/b/x"),
        ('<base href="https://h/"><a href="https:x">', "https://h/x"),
        ('<base href="https://h/"><a href="http:x">', ""),
        ('<map><area href="/x"></map>', "http://example.org/x"),
        ('<iframe src="/x"></iframe>', "http://example.org/x"),
        ('<link rel="prefetch NEXT" href="/x">', "http://example.org/x"),
        ('<meta http-equiv="Refresh" content="5; URL=/x">', "http://example.org/x"),
        ("<meta http-equiv=refresh content=\"0;url='/x?a=b'\">", "http://example.org/x?a=b"),
        ('<img alt="<a href=/no>"><a x=">" href="/x">', "http://example.org/x"),
        ('<base href="/b/"><a href="x">', "http://example.org/b/x"),
        (
            '<a href="x"><base target=_top><base href="/b/"><base href="/c/">',
            "http://example.org/b/x",
        ),
        ('<base href="javascript:1"><a href="x">', "http://example.org/docs/x"),
        ("<a href=/x", ""),
        ("<script>'<a href=/x>'</script>", ""),
        ("<!-- <a href=/x> -->", ""),
        ("<textarea><a href=/x></textarea>", ""),
        ('<link rel="stylesheet" href="/x">', ""),
        ('<meta http-equiv="refresh" content="5">', ""),
        ('<meta name="refresh" content="5;url=/x">', ""),
        ("<a name=x>", ""),
        ("<a href>", ""),
        ('<a href="">', ""),
        ('<a href="#part">', ""),
    ],
)
def test_what_a_tag_refers_to(markup: str, link: str) -> None:
    assert found(markup) == ([link] if link else [])


@pytest.mark.parametrize(
    "reference",
    [
        "javascript:void(0)",
        "JavaScript:void(0)",
        "mailto:somebody@example.org",
        "data:text/html,<a href=/x>",
        "tel:+123",
        "ftp://example.org/x",
        "file:///etc/passwd",
        "http://",
        "http:///x",
        "http:",
        "http:#x",
        "https:x",
        "https:/x",
        "http://[::1",
        "http://exa mple.org/",
        "http://h:99999/",
        "http://h\x00/",
        "http://*/",
        "/" + "x" * 100_000,
    ],
)
def test_what_is_no_link(reference: str) -> None:
    assert found(f'<a href="{reference}"><a href="/last">') == ["http://example.org/last"]


def test_frames_of_a_frameset() -> None:
    assert found('<frameset><frame src="/a"><frame src="/b"></frameset>') == [
        "http://example.org/a",
        "http://example.org/b",
    ]


def test_each_link_once_in_the_order_of_the_page() -> None:
    references = ("/b", "/a", "/b#x", "http://example.org/a", "c/../../c")
    page = "".join(f'<a href="{reference}">' for reference in references)
    assert found(page) == [f"http://example.org/{name}" for name in "bac"]


def test_nofollow_is_followed_unless_told_otherwise() -> None:
    page = '<a rel="external NoFollow" href="/a"><a rel="nofollowed" href="/b">'
    assert len(found(page)) == 2
    assert found(page, nofollow=False) == ["http://example.org/b"]


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "cp1252", "shift_jis", "nonsense", "idna"])
def test_a_page_in_any_charset_or_a_wrong_one(charset: str) -> None:
    known = charset not in {"nonsense", "idna"}
    body = '<a href="/x">'.encode(charset if known else "utf-8")
    assert list(links_of(body, PAGE, charset)) == [URL("http://example.org/x")]
    list(links_of(b"<a href='/\xff\xfe\xfc'>", PAGE, charset))


def test_a_query_is_sent_in_the_charset_of_its_page() -> None:
    body = '<a href="/ü?q=ü&amp;p=%20"><a href="?→">'.encode("cp1252", "xmlcharrefreplace")
    assert [str(link) for link in links_of(body, PAGE, "cp1252")] == [
        "http://example.org/%C3%BC?q=%FC&p=%20",
        "http://example.org/docs/index.html?%E2%86%92",
    ]


def formatting_bomb(outer: int, inner: int) -> str:
    opened = "".join(f"<font color={number}>" for number in range(outer))
    return f"<p>{opened}</p>" + "<p>x</p>" * inner + "<a href=/x>"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("<div>" * 100_000 + "<a href=/x>", id="nested"),
        pytest.param("<ul><li>" * 50_000 + "<a href=/x>", id="lists"),
        pytest.param(formatting_bomb(2_000, 2_000), id="formatting"),
        pytest.param(f"<a {' '.join(f'x{n}' for n in range(50_000))} href=/x>", id="attributes"),
        pytest.param("<a href=/x>" + "<a x" * 300_000, id="tags left open"),
        pytest.param("<a href=/x>" + "<a x='" * 300_000, id="quotes left open"),
        pytest.param("<a href=/x>" + "<!--" * 300_000, id="comments left open"),
        pytest.param("<a href=/x>" + "<" * 1_000_000, id="angles"),
        pytest.param("\0" * 100_000 + "<a href=/x>", id="NUL"),
        pytest.param(
            f"<meta http-equiv=refresh content='{' ' * 300_000}'><a href=/x>", id="blanks"
        ),
    ],
)
def test_no_page_costs_more_than_its_length(page: str) -> None:
    assert not is_tame(page)
    assert list(links_of(page.encode(), PAGE)) == [URL("http://example.org/x")]


def test_ordinary_pages_have_a_tree() -> None:
    assert is_tame("<p>text <a href=/x>link</a> <b class=x>bold</b></p>" * 50)
    assert not is_tame(formatting_bomb(200, 300))
    assert not is_tame("<div>" * 5_001)
    assert is_tame("<p>" + "text " * 1_000)
    assert not is_tame("<a " + " ".join(f"x{number}" for number in range(5_000)))


def test_a_page_of_nothing_but_links_has_an_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(links, "MOST_LINKS", 50)
    with caplog.at_level(logging.WARNING):
        found = list(links_of("".join(f"<a href={n}>" for n in range(100)).encode(), PAGE))
    assert len(found) == 50
    assert "only its first 50 links" in caplog.text


PIECES = [
    *(
        "<a href=/x>",
        "<a href='/y z'>",
        '<A HREF="/q?a=1&amp;b=2">',
        "</a>",
        "<a href>",
        "<a href=>",
    ),
    *("<a href=/c?x=1&copy=2&lang=en&amp>", "<a/href=/slash>", "<a href = '/sp' x>", "<a href='"),
    *(
        '<a x="<a href=/in>" href=/out>',
        "<a href=/one href=/two>",
        "<a\nhref\n=\n/nl\n>",
        "<ahref=/no>",
    ),
    *(
        "<a href=/un'q\"x>",
        "<a =x href=/eq>",
        "<a ='>' href=/eq2>",
        "<a href=&#x2F;num>",
        "<a href= >",
    ),
    *("<a href=&#47num>", "<a href=/&notin;x&not;y&notx>", "<a href=/a&#0;b&#x80;&#xd800;&bogus;>"),
    *(
        "<area href=/ar>",
        "<link rel=next href=/n>",
        "<base href=/b/>",
        "<iframe src=/f>",
        "</iframe>",
    ),
    *("<meta http-equiv=refresh content='0;url=/r'>", "<!-- <a href=/no> -->", "<!-->", "<!--->"),
    *(
        "<!--",
        "-->",
        "--!>",
        "<style>",
        "</style >",
        "<textarea>",
        "</textarea\n>",
        "<title>",
        "</title>",
    ),
    *("<xmp>", "</xmp>", "<noscript>", "</noscript>", "<?php <a href=/php> ?>", "<!doctype html>"),
    *(
        "</ >",
        "</>",
        "<p>",
        "</p>",
        "<b>",
        "</b>",
        "<table>",
        "<td>",
        "</table>",
        "<ul><li>",
        "<br/>",
    ),
    *(
        "text",
        "<",
        "<<",
        "< a",
        ">",
        "'",
        '"',
        "=",
        "/",
        "&amp;",
        "\r\n",
        "\r",
        "\0",
        "é",
        "<img alt='>'>",
    ),
    *("<a href='/c\r\nd\re'>", "<plaintext>", "<a href=/s/>", "<div class='a>b'>"),
]


def as_browsers_have_them(tags: list[Tag]) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """A tree repeats and moves what is nested wrongly; what there is stays the same."""
    return {
        (tag.name, tuple(sorted((name, value or "") for name, value in tag.attributes.items())))
        for tag in tags
    }


@quick(1_500)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_the_scan_finds_what_the_tree_has(page: str) -> None:
    assert as_browsers_have_them([*_from_scan(page)]) == as_browsers_have_them([*_from_tree(page)])


@quick(500)
@given(
    st.lists(st.sampled_from(PIECES).map(str.encode) | st.binary(max_size=20), max_size=12),
    st.sampled_from([None, "utf-8", "utf-16", "cp1252", "gb18030", "utf-7", "nonsense"]),
    st.booleans(),
)
def test_no_bytes_make_it_raise(pieces: list[bytes], charset: str | None, large: bool) -> None:
    body = b"".join(pieces) + (PADDING.encode() if large else b"")
    for link in links_of(body, PAGE, charset):
        assert link.scheme in {"http", "https"}
        assert link.host
        assert not link.fragment


URL_PIECES = ["http:", *"/@:?#[]%\\aé.", "//", ".."]


@quick(1_000)
@given(st.text() | st.lists(st.sampled_from(URL_PIECES)).map("".join))
def test_no_text_makes_a_url_raise_anything_else(text: str) -> None:
    link = web_url_or_none(text)
    assert link is None or web_url(str(link)) == link
    joined = web_url_or_none(text, PAGE)
    assert joined is None or len(text) <= LONGEST_URL


@pytest.mark.parametrize(
    ("text", "base", "said"),
    [
        (" #top", None, "empty"),
        ("http:", PAGE, "empty"),
        ("ftp://h/", None, "neither http nor https"),
        ("http://ü b/", None, "no host that could be asked|not a URL"),
        ("http:///x", None, "no host that could be asked"),
        ("http://[", None, "not a URL"),
        ("http://h/\ud800", None, "it holds a lone surrogate"),
        ("\u00a0http://h/", None, "neither http nor https"),
        ("a" * (LONGEST_URL + 1), None, f"longer than {LONGEST_URL} characters"),
    ],
)
def test_what_is_wrong_with_a_url(text: str, base: URL | None, said: str) -> None:
    with pytest.raises(ValueError, match=f"^({said})$"):
        web_url(text, base)


def test_a_scheme_without_slashes_is_that_of_the_page() -> None:
    base = URL("http://h/a/b")
    told = {
        "http:X": "/a/X",
        "http:/X": "/X",
        "HTTP:x/y": "/a/x/y",
        "http:?q": "/a/b?q",
        "http:X:y": "/a/X:y",
    }
    for text, path in told.items():
        assert str(web_url(text, base)) == f"http://h{path}"


def test_what_is_wrong_with_a_url_is_said_without_its_credentials() -> None:
    for text in ("http://somebody:secret", "ftp://somebody:secret@h/", "http://u:secret@[::1/"):
        with pytest.raises(ValueError, match=r"^(?!.*secret)"):
            web_url(text)


async def test_only_large_pages_are_parsed_in_a_thread() -> None:
    assert await parsed(LARGE, threading.get_ident) == threading.get_ident()
    assert await parsed(LARGE + 1, threading.get_ident) != threading.get_ident()


def test_the_longest_url() -> None:
    text = "http://h/".ljust(LONGEST_URL, "x")
    assert str(web_url(text)) == text


def test_a_base_gives_no_fragment() -> None:
    assert str(web_url("?", URL("http://h/a#there"))) == "http://h/a"
