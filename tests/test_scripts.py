"""The Lua files: what headers promise, what bodies may use, how they are put together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis.crc import key_slot

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.queue import scripts
from data_fetcher_core.queue.engine import Outcome
from data_fetcher_core.queue.keys import KINDS, Keys
from data_fetcher_core.queue.scripts import CONSTANTS, assemble, load_script, load_source, parse
from tests.servers import RedisServer

LUA = Path(scripts.__file__).parent / "lua"
VERBS = sorted(path.stem for path in LUA.glob("*.lua"))
INCLUDES = sorted(f"include/{path.stem}" for path in LUA.glob("include/*.lua"))
FILES = [*VERBS, *INCLUDES]
STEMS = {"ready_of", "seen_of", "leased_of", "wake_of"}
ARGUMENTS = {name for file in FILES for name in load_source(file).names("ARGV")}

LUA_WORDS = {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in"}
LUA_WORDS |= {"local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"}
GIVEN = {"redis", "struct", "cmsgpack", "string", "table", "math", "unpack", "ipairs", "pairs"}
GIVEN |= {"tonumber", "tostring", "error", "take"}

TOKEN = re.compile(r"'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|\d[\w.]*|\.\.\.?|[=~<>]=|\S")
NAME = re.compile(r"[A-Za-z_]\w*")


def tokens(text: str) -> list[str]:
    """The words and signs of a Lua text, without comments; strings as they are."""
    return TOKEN.findall(re.sub(r"--[^\n]*", "", text))


def names_used(text: str) -> set[str]:
    """Names that stand for themselves: no fields, methods or keys of a table constructor."""
    found, words, open_brackets = set(), tokens(text), []
    for at, word in enumerate(words):
        before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
        if word in "({":
            open_brackets.append(word)
        elif word in ")}":
            open_brackets.pop()
        is_key = after == "=" and open_brackets[-1:] == ["{"]
        if NAME.fullmatch(word) and before not in {".", ":"} and not is_key:
            found.add(word)
    return found - LUA_WORDS


def names_declared(text: str) -> set[str]:
    """Locals, functions, parameters and loop variables."""
    flat = " ".join(tokens(text))
    patterns = (
        r"local (?!function )((?:\w+ , )*\w+)",
        r"local function (\w+)",
        r"function \w* ?\( ((?:\w+ , )*\w+) \)",
        r"for ((?:\w+ , )*\w+) (?:in|=)",
    )
    lists = (found for pattern in patterns for found in re.findall(pattern, flat))
    return {name for listed in lists for name in listed.split(" , ")}


@pytest.mark.parametrize("file", FILES)
def test_a_file_says_what_it_guarantees(file: str) -> None:
    source = load_source(file)
    assert re.match(r"-- [A-Z]", source.text)
    assert file in INCLUDES or "RETURNS" in source.header


@pytest.mark.parametrize("file", FILES)
def test_bodies_know_keys_and_arguments_by_name(file: str) -> None:
    words = tokens(load_source(file).text)
    assert not {"KEYS", "ARGV"} & set(words)


@pytest.mark.parametrize("file", FILES)
def test_what_is_declared_is_used_and_what_is_used_is_declared(file: str) -> None:
    source = load_source(file)
    used, local = names_used(source.text), names_declared(source.text)
    for field, all_names in (("KEYS", set(KINDS)), ("STEMS", STEMS), ("ARGV", ARGUMENTS)):
        declared = set(source.names(field))
        assert declared <= used, f"{field} that are not used: {declared - used}"
        undeclared = (used & all_names) - declared - local
        assert not undeclared, f"used and not among {field}: {undeclared}"


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_uses_no_global_of_its_own(verb: str) -> None:
    script = load_script(verb)
    used, declared = names_used(script.source), names_declared(script.source)
    assert used - declared - GIVEN - {"KEYS", "ARGV"} == set()


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_includes_what_comes_from_other_files(verb: str) -> None:
    """A body may rely on what another include brings; named here, the reader finds it."""
    source = load_source(verb)
    outside = names_used(source.text) - names_declared(source.text) - GIVEN - set(CONSTANTS)
    outside -= {name for field in ("KEYS", "STEMS", "ARGV") for name in source.names(field)}
    brought = {
        name
        for include in source.names("INCLUDE")
        for name in names_declared(load_source(f"include/{include}").text)
    }
    assert outside <= brought, outside - brought


@pytest.mark.parametrize("file", FILES)
def test_no_command_that_loses_or_looks_around(file: str) -> None:
    text = load_source(file).text
    words = tokens(text)
    commands = {
        word[1:-1].upper()
        for at, word in enumerate(words)
        if word.startswith("'") and words[at - 1] == "(" and words[at - 2] in {"call", "pcall"}
    }
    assert not commands & {"KEYS", "SCAN", "HSCAN", "ZSCAN", "SSCAN", "LPOP", "RPOP", "SPOP"}
    assert "math.random" not in text


@pytest.mark.parametrize("file", FILES)
def test_constants_are_those_of_python(file: str) -> None:
    shouted = {word for word in names_used(load_source(file).text) if re.match(r"[A-Z]", word)}
    assert shouted <= set(CONSTANTS), shouted - set(CONSTANTS)


@pytest.mark.parametrize("verb", VERBS)
def test_scripts_compile(verb: str, each_redis: RedisServer) -> None:
    with each_redis.client() as client:
        client.script_load(load_script(verb).source)


def test_constants_are_written_out() -> None:
    script = assemble([parse("x", "-- Says.\nreturn OUTCOME_CANCELLED + OTHER")])
    assert script.source.endswith(f"return {int(Outcome.CANCELLED)} + OTHER")


def test_names_are_bound_in_order_and_once() -> None:
    include = parse("include/i", "-- Shared.\n-- KEYS: ring state\n-- STEMS: ready_of\n")
    verb = parse("v", "-- Does.\n-- KEYS: state wake\n-- ARGV: a b\n-- REST: more\nreturn take()")
    script = assemble([include, verb])
    assert script.keys == ("ring", "state", "wake")
    assert "local ring, state, wake = KEYS[1], KEYS[2], KEYS[3]\n" in script.source
    assert "local ready_of, a, b = ARGV[1], ARGV[2], ARGV[3]\n" in script.source
    keys, arguments = script.bind(Keys("", "n"), b"", {"b": 2, "a": 1}, ["rest"])
    assert keys == [b"{n}:ring", b"{n}:state", b"{n}:wake"]
    assert arguments == [b"{n}:ready:", 1, 2, "rest"]


def test_a_header_goes_over_several_lines_and_ends_with_the_comment() -> None:
    source = parse("x", "-- Does.\n-- KEYS: ring\n-- KEYS: wake\n\n-- KEYS: state\n")
    assert source.names("KEYS") == ("ring", "wake")


def test_includes_come_once_and_before_what_needs_them() -> None:
    text = load_script("lease").source
    firsts = [text.index(f"local function {name}(") for name in ("next_number", "place", "promote")]
    assert firsts == sorted(firsts)
    assert text.count("local function next_number(") == 1


@pytest.mark.parametrize("namespace", ["a", "{", "}", "{}", "a{b}c", "%7B", ":", "*", "\n\0", "ü"])
@pytest.mark.parametrize("key_prefix", ["", "app:"])
def test_all_keys_of_a_run_are_in_one_slot(namespace: str, key_prefix: str) -> None:
    keys = Keys(key_prefix, namespace)
    all_keys = [keys.named(name) for name in KINDS] + [keys.stem(name) + b"}{x" for name in STEMS]
    all_keys += [keys.leased(b"{c}"), keys.wake(b"{l}")]
    assert len({key_slot(key) for key in all_keys}) == 1


def test_no_two_runs_share_a_key() -> None:
    names = ["{", "}", "%7B", "%7D", "%", "%25", "a}:b", "a", "a:"]
    assert len({Keys("", name).named("state") for name in names}) == len(names)


def test_a_run_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="non-empty"):
        Keys("", "")
