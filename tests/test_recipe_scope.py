"""How far a crawl goes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from yarl import URL

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.recipes import Scope


def admitted(scope: Scope, *urls: str) -> list[bool]:
    return [scope.admits(URL(url)) for url in urls]


def test_around_the_start_urls_means_their_scheme_host_and_port() -> None:
    scope = Scope.around(["http://Example.org/docs/", URL("https://other.example:8443/")])
    assert scope.origins == ("http://example.org", "https://other.example:8443")
    assert all(
        admitted(
            scope, "http://example.org/", "http://EXAMPLE.org:80/x?y", "https://other.example:8443"
        )
    )
    assert not any(
        admitted(
            scope,
            "https://example.org/",
            "http://example.org:8080/",
            "http://www.example.org/",
            "http://example.org.evil.example/",
            "https://other.example/",
            "https://example.org@evil.example/",
        )
    )


def test_one_start_url_may_be_given_alone() -> None:
    assert Scope.around("http://example.org/x") == Scope.around([URL("http://example.org/y")])


def test_hosts_are_names_at_any_port() -> None:
    scope = Scope(hosts=("Example.org", "*.bücher.example"))
    assert admitted(scope, "https://example.org:444/", "http://sub.example.org/") == [True, False]
    assert admitted(scope, "http://a.b.xn--bcher-kva.example/", "http://bücher.example/") == [
        True,
        False,
    ]
    assert admitted(scope, "http://notbücher.example/") == [False]


def test_origins_and_hosts_add_up() -> None:
    scope = Scope(origins=("http://a.example",), hosts=("b.example",))
    assert admitted(scope, "http://a.example/", "https://b.example/", "http://c.example/") == [
        True,
        True,
        False,
    ]


def test_a_prefix_is_the_beginning_of_the_url() -> None:
    scope = Scope(prefix="HTTP://Example.org:80/Docs/")
    assert admitted(scope, "http://example.org/Docs/x", "http://example.org/docs/x") == [
        True,
        False,
    ]
    whole_host = Scope(prefix="http://example.org")
    assert admitted(
        whole_host, "http://example.org", "http://example.org/x", "http://example.org.evil/"
    ) == [
        True,
        True,
        False,
    ]


def test_patterns_are_searched_in_the_whole_url() -> None:
    scope = Scope(include=(r"/docs/", r"\?page=\d+$"), exclude=(r"\.pdf$", r"^https:"))
    assert admitted(scope, "http://h/docs/x", "http://h/?page=12", "http://h/docs/x.pdf") == [
        True,
        True,
        False,
    ]
    assert admitted(scope, "https://h/docs/x", "http://h/other", "http://docs/other") == [
        False,
        False,
        True,
    ]
    assert admitted(Scope(exclude=("x",)), "http://h/x", "http://h/y") == [False, True]


def test_depth_is_counted_from_the_start_urls() -> None:
    scope, url = Scope(max_depth=2), URL("http://h/")
    assert [scope.admits(url, depth) for depth in (0, 2, 3)] == [True, True, False]
    assert Scope(max_depth=0).admits(url, 0)
    assert Scope(max_depth=0).admits(url)
    assert not Scope(max_depth=0).admits(url, 1)
    assert Scope().admits(url, 10**9)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"include": ["(fine)", "(broken"]},
            r"include is no regular expression: '\(broken' .*missing",
        ),
        ({"exclude": "*"}, r"exclude is no regular expression: '\*'"),
        ({"include": [""]}, "include must hold texts"),
        ({"include": [5]}, "include must hold texts, not 5"),
        ({"include": 5}, "include must be a list of texts, not 5"),
        ({"origins": ["example.org"]}, "'example.org' is no origin"),
        ({"origins": ["http://u:secret@"]}, r"…@"),
        ({"hosts": ["http://h/"]}, "not a host: 'http://h/'"),
        ({"hosts": ["*"]}, "not a host"),
        ({"hosts": ["*."]}, "not a host"),
        ({"hosts": ["a*.example"]}, "not a host"),
        ({"hosts": ["a.example/x"]}, "not a host"),
        ({"hosts": ["u@a.example"]}, "not a host"),
        ({"hosts": ["a example"]}, "not a host"),
        ({"origins": ["ftp://u:p@secret@h/"]}, r"^'…@h/' is no origin"),
        ({"origins": ["@" + "x" * 300]}, "^'" + "@" + "x" * 199 + "' is"),
        ({"origins": ["secret@" + "x" * 300]}, "^'…@" + "x" * 198 + "' is"),
        ({"prefix": "/docs"}, "'/docs' is no prefix"),
        ({"prefix": 5}, "prefix must be the beginning of a URL, not 5"),
        ({"max_depth": -1}, "max_depth must be a whole number from 0, .*, not -1"),
        ({"max_depth": True}, "max_depth"),
        ({"max_depth": "5"}, "max_depth"),
        ({"max_depth": 1.5}, "max_depth"),
    ],
)
def test_what_cannot_be_a_scope_says_why(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        Scope(**settings)
    assert "secret" not in str(caught.value)


def test_no_start_url_is_no_scope() -> None:
    with pytest.raises(ConfigurationError, match="at least one start URL"):
        Scope.around([])


def test_a_start_that_is_no_text_is_no_scope() -> None:
    with pytest.raises(ConfigurationError, match=r"^5 is no start URL: write it like"):
        Scope.around(5)  # type: ignore[arg-type]


def test_it_is_a_value() -> None:
    scope = Scope(hosts=["b", "a"], include="x")  # type: ignore[arg-type]
    assert scope == Scope(hosts=("a", "b"), include=("x",))
    assert hash(scope) == hash(Scope(hosts=("a", "b"), include=("x",)))
    assert repr(scope) == repr(Scope(hosts=("a", "b"), include=("x",)))
    assert "_hosts" not in repr(scope)
    with pytest.raises(FrozenInstanceError):
        scope.prefix = "x"  # type: ignore[misc]
