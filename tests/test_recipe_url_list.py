"""A list of URLs in a file: read in parts, resumed anywhere, nothing lost silently."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.core import FetchRunContext, Page, RequestMeta
from data_fetcher_core.errors import ConfigurationError, FetchError
from data_fetcher_core.recipes import UrlListLocator, listed_urls, url_list_recipe
from tests.properties import quick

CONTEXT = FetchRunContext("run")

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: bytes, name: str = "urls.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return written


async def rest(locator: UrlListLocator) -> list[str]:
    urls: list[str] = []
    while requests := await locator.get_next_urls(CONTEXT):
        urls += [str(request.url) for request in requests]
    return urls


async def resumed(path: Path, state: Any, batch: int = 1_000) -> UrlListLocator:
    locator = UrlListLocator(path, batch=batch)
    locator.restore(json.loads(json.dumps(state)))
    return locator


@pytest.mark.parametrize("name", ["urls.txt", "urls.txt.gz"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
async def test_one_url_a_line(write: Write, name: str, end: bytes) -> None:
    lines = [
        b"\xef\xbb\xbfhttp://h/1",
        b"",
        b"  # a comment",
        b"\xef\xbb\xbf http://h/2#x\t",
        b"http://h/\xc3\xa9",
    ]
    locator = UrlListLocator(write(end.join(lines), name))
    assert await rest(locator) == ["http://h/1", "http://h/2", "http://h/%C3%A9"]
    assert locator.bad_count == 0
    assert await locator.get_next_urls(CONTEXT) == []


async def test_it_is_read_in_parts(write: Write) -> None:
    locator = UrlListLocator(write(b"http://h/1\nhttp://h/2\n#\nhttp://h/3\n"), batch=2)
    sizes = [len(await locator.get_next_urls(CONTEXT)) for _ in range(3)]
    assert sizes == [2, 1, 0]


async def test_several_compressed_parts_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "urls.gz"
    path.write_bytes(gzip.compress(b"http://h/1\nhttp://") + gzip.compress(b"h/2"))
    assert await rest(UrlListLocator(path, batch=1)) == ["http://h/1", "http://h/2"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n", b"\xef\xbb\xbf"])
async def test_a_file_without_urls(write: Write, content: bytes) -> None:
    locator = UrlListLocator(write(content))
    assert await rest(locator) == []
    assert locator.bad_count == 0


@pytest.mark.parametrize("name", ["urls.txt", "urls.gz"])
async def test_a_file_in_which_no_line_is_a_url_is_a_failure(write: Write, name: str) -> None:
    path = write(b"# hosts\n\nexample.org/x\nu:secret@h/\n" + b"example.org:80/y\n" * 150, name)
    locator = UrlListLocator(path)
    for _ in range(2):  # given up and requeued, it is no success either
        with pytest.raises(FetchError) as caught:
            await locator.get_next_urls(CONTEXT)
        assert not caught.value.retryable
        assert str(caught.value) == (
            f"{path}: none of its 152 lines is a URL; the first, line 3: neither http nor https: "
            "begin it with http:// or https://"
        )
        assert locator.checkpoint() == UrlListLocator(path).checkpoint()
    write(b"http://h/1\n", name)  # mended, it may be gone on with
    assert await rest(locator) == ["http://h/1"]


async def test_bad_lines_at_the_end_are_no_failure(write: Write) -> None:
    locator = UrlListLocator(write(b"http://h/1\nbad\n"), batch=1)
    assert await rest(locator) == ["http://h/1"]
    assert await rest(await resumed(locator.path, locator.checkpoint())) == []


async def test_bad_lines_are_counted_kept_and_logged(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(
        b"http://h/1\nnonsense\nhttp://h/\xff\nftp://u:secret@h/\n\nhttp://u:secret\nhttp://h/2"
    )
    with caplog.at_level(logging.WARNING):
        locator = UrlListLocator(path)
        assert await rest(locator) == ["http://h/1", "http://h/2"]
    assert locator.bad_lines == [
        (2, "neither http nor https: begin it with http:// or https://"),
        (3, "not UTF-8"),
        (4, "neither http nor https"),
        (6, "not a URL"),
    ]
    assert f"{path}, line 3 is passed over: not UTF-8" in caplog.text
    assert "secret" not in caplog.text


async def test_of_many_bad_lines_the_first_are_kept(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    locator = UrlListLocator(write(b"x\n" * 150 + b"http://h/\n" + b"y\n" * 5), batch=1)
    with caplog.at_level(logging.WARNING):
        assert await rest(locator) == ["http://h/"]
    assert (locator.bad_count, len(locator.bad_lines)) == (155, 100)
    assert "50 lines more are passed over" in caplog.text
    again = await resumed(locator.path, locator.checkpoint())
    assert again.bad_count == 155


async def test_a_line_without_end_is_not_held(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_urls, "_LONGEST_LINE", 64)
    long = b"http://h/" + b"x" * 1_000
    locator = UrlListLocator(write(long + b"\nhttp://h/1\n" + b"y" * 64 + b"\nhttp://h/2\n" + long))
    assert await rest(locator) == [
        "http://h/" + "x" * 55,
        "http://h/1",
        "http://h/2",
        "http://h/" + "x" * 55,
    ]
    assert [line for line, _ in locator.bad_lines] == [3]


async def test_a_url_too_long_is_a_bad_line(write: Write) -> None:
    locator = UrlListLocator(write(b"http://h/" + b"x" * 100_000 + b"\nhttp://h/1"))
    assert await rest(locator) == ["http://h/1"]
    assert locator.bad_lines == [(1, "longer than 8192 characters")]


lines = st.lists(
    st.sampled_from(
        [b"http://h/%d" % number for number in range(9)]
        + [b"", b"# no", b"bad", b"\xff", b" http://h/x ", b"http://h/" + b"l" * 300]
    ),
    max_size=30,
)


@quick(80)
@given(lines, st.sampled_from([b"\n", b"\r\n"]), st.integers(1, 5), st.booleans(), st.data())
def test_from_any_checkpoint_comes_exactly_the_rest(
    lines: list[bytes], end: bytes, batch: int, packed: bool, data: st.DataObject
) -> None:
    async def check(folder: Path) -> None:
        content = end.join([b"http://h/first", *lines])
        path = folder / ("urls.gz" if packed else "urls.txt")
        path.write_bytes(gzip.compress(content) if packed else content)
        whole = await rest(UrlListLocator(path))
        wanted = [line.strip().decode() for line in lines if line.strip().startswith(b"http")]
        assert whole == ["http://h/first", *wanted]
        locator = UrlListLocator(path, batch=batch)
        given: list[str] = []
        for _ in range(data.draw(st.integers(0, 8))):
            given += [str(request.url) for request in await locator.get_next_urls(CONTEXT)]
            if data.draw(st.booleans()):
                locator = await resumed(path, locator.checkpoint(), data.draw(st.integers(1, 5)))
        assert given + await rest(locator) == whole
        assert locator.bad_count == sum(line in {b"bad", b"\xff"} for line in lines)

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(check, Path(folder))


@pytest.mark.parametrize("begun", [0, 1, 3])
async def test_another_file_under_the_same_name_is_refused(write: Write, begun: int) -> None:
    path = write(b"http://h/1\nhttp://h/2\n")
    locator = UrlListLocator(path, batch=1)
    await locator.get_next_urls(CONTEXT)
    for _ in range(begun):
        await locator.get_next_urls(CONTEXT)
    state = locator.checkpoint()
    write(b"http://h/1\nhttp://h/X\n")
    with pytest.raises(ConfigurationError, match="was changed since the run was begun"):
        await (await resumed(path, state)).get_next_urls(CONTEXT)
    write(b"http://h/1\nhttp://h/2\n")
    await rest(await resumed(path, state))


async def test_a_checkpoint_before_the_first_line(write: Write) -> None:
    path = write(b"http://h/1")
    assert await rest(await resumed(path, UrlListLocator(path).checkpoint())) == ["http://h/1"]


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.txt", tmp_path / "none.gz", tmp_path):
        with pytest.raises(
            ConfigurationError, match=r"cannot be read: (No such file|Is a directory)"
        ):
            await UrlListLocator(path).get_next_urls(CONTEXT)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b[:40] + b"\0" * 9 + b[49:], lambda _: b"plain"]
)
async def test_a_compressed_file_that_is_damaged(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "urls.gz"
    content = b"".join(b"http://h/%d\n" % (number * 7919) for number in range(1_000))
    path.write_bytes(damage(gzip.compress(content)))
    with pytest.raises(ConfigurationError, match=r"urls\.gz cannot be read after line \d+: "):
        await rest(UrlListLocator(path, batch=100))


async def test_files_are_closed_also_when_nobody_reads_on(write: Write) -> None:
    for name in ("urls.txt", "urls.gz"):
        locator = UrlListLocator(write(b"http://h/1\nhttp://h/2\n", name), batch=1)
        await locator.get_next_urls(CONTEXT)
        file = locator._file
        assert file is not None
        del locator
        gc.collect()
        assert file.closed


async def test_reading_is_done_in_a_thread(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    for name in ("digest_if_unchanged", "open_list", "read_urls"):
        inner = getattr(listed_urls, name)

        def noted(*arguments: Any, inner: Any = inner) -> Any:
            threads.add(threading.get_ident())
            return inner(*arguments)

        monkeypatch.setattr(f"data_fetcher_core.recipes.url_list.{name}", noted)
    await rest(UrlListLocator(write(b"http://h/1\n")))
    assert threads
    assert threading.get_ident() not in threads


async def test_what_a_cancelled_call_read_is_read_again(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on, done = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(reading.set)
        go_on.wait()
        batch = listed_urls.read_urls(*arguments)
        done.set()
        return batch

    locator = UrlListLocator(write(b"http://h/1\nhttp://h/2\n"), batch=1)
    assert len(await locator.get_next_urls(CONTEXT)) == 1
    before = locator.checkpoint()
    monkeypatch.setattr("data_fetcher_core.recipes.url_list.read_urls", slow)
    task = asyncio.create_task(locator.get_next_urls(CONTEXT))
    await reading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await asyncio.to_thread(done.wait)
    monkeypatch.undo()
    assert locator.checkpoint() == before
    assert await rest(locator) == ["http://h/2"]


@pytest.mark.parametrize("batch", [0, -1, 10_001, True, "5", 1.5])
def test_a_batch_is_at_most_what_enters_the_queue_in_one_step(batch: Any) -> None:
    with pytest.raises(ConfigurationError, match="batch must be a whole number from 1 to 10000"):
        UrlListLocator("urls.txt", batch=batch)


async def test_redirects_are_followed_wherever_they_lead(write: Write) -> None:
    locator = UrlListLocator(write(b""))
    request = RequestMeta("http://h/1")
    page = Page("http://h/1", 301, "", 0, 0.0, location="https://other.example/2")
    assert await locator.handle_url_processed(request, [page], CONTEXT) == [
        RequestMeta("https://other.example/2", 0, "http://h/1", flags={"redirects": 1})
    ]
    html = Page("http://h/1", 200, "text/html", 0, 0.0, body=b"<a href=/x>")
    assert await locator.handle_url_processed(request, [html], CONTEXT) == []
    assert await locator.handle_url_processed(request, None, CONTEXT) == []


def test_the_recipe(tmp_path: Path) -> None:
    recipe = url_list_recipe(tmp_path / "urls.txt", object())  # type: ignore[arg-type]
    assert recipe.recipe_id == "url-list"
    assert isinstance(recipe.bundle_locators[0], UrlListLocator)
