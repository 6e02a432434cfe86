"""The usage example of the specification: its calls, made by docs/examples/spec_usage.py."""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from yarl import URL

from data_fetcher_core.config_factory import FetcherConfig, create_fetcher_config
from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext, RequestMeta
from data_fetcher_core.exceptions import ConfigurationError
from data_fetcher_core.fetcher import Fetcher, FetchResult
from data_fetcher_core.queue import KVStoreQueue, RequestMetaSerializer
from data_fetcher_core.storage import FileStorage
from tests.pages import ROOT
from tests.s3_server import S3Server, running_s3

PROGRAM = ROOT / "docs" / "examples" / "spec_usage.py"

# Written as in the specification.
IMPORTS = """
from data_fetcher_core.queue import KVStoreQueue, RequestMetaSerializer
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.config_factory import create_fetcher_config
from yarl import URL
"""
CALLS = """
kv_store = create_kv_store(store_type="memory")
queue = KVStoreQueue(
    kv_store=kv_store,
    namespace="test_queue",
    serializer=RequestMetaSerializer()
)
requests = [
    RequestMeta(url=URL("https://example.com/1")),
    RequestMeta(url=URL("https://example.com/2")),
]
await queue.enqueue(requests)
size = await queue.size()
dequeued = await queue.dequeue(max_items=1)
await queue.close()
plan = FetchPlan(
    recipe=recipe,
    context=FetchRunContext(run_id="my_run", app_config=app_config),
    concurrency=4,
    target_queue_size=100
)
fetcher = Fetcher()
"""


@pytest.fixture
def example() -> SimpleNamespace:
    """What the program defines, new for every test."""
    return SimpleNamespace(**runpy.run_path(str(PROGRAM)))


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        server.make_bucket("crawl")
        yield server


def statements(source: str) -> set[str]:
    return {ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)}


def test_it_makes_the_calls_as_they_are_written() -> None:
    made = statements(PROGRAM.read_text())
    assert statements(IMPORTS) <= made
    assert statements(CALLS) <= made
    assert "await fetcher.run(plan)" in ast.unparse(ast.parse(PROGRAM.read_text()))


async def test_two_in_and_one_out(
    example: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    (request,) = await example.use_a_queue()
    assert isinstance(request, RequestMeta)
    assert request.url == URL("https://example.com/1")
    assert capsys.readouterr().out == "2 requests wait\n"


async def test_a_run_in_memory_with_its_pages_in_a_folder(
    example: SimpleNamespace, tmp_path: Path
) -> None:
    result = await example.use_a_fetcher(
        example.recipe, kv_store_type="memory", storage_type="file", file_path=tmp_path / "pages"
    )
    assert isinstance(result, FetchResult)
    assert (result.processed_count, result.errors, result.context.run_id) == (2, [], "my_run")
    lines = [json.loads(line) for line in (tmp_path / "pages/index.jsonl").read_text().splitlines()]
    assert {line["url"] for line in lines} == {"https://example.com/1", "https://example.com/2"}
    for line in lines:
        page = (tmp_path / "pages" / line["path"]).read_text()
        assert page == f"the page at {line['url']}"


async def test_a_run_on_redis_with_its_pages_in_a_bucket(
    example: SimpleNamespace, redis_url: str, s3: S3Server
) -> None:
    """``kv_store_type="redis", storage_type="s3"``, and a second call that finds all done."""
    server = URL(redis_url)
    where: dict[str, Any] = {
        "kv_store_type": "redis",
        "redis_host": server.host,
        "redis_port": server.port,
        "storage_type": "s3",
        "s3_url": "s3://crawl/my_run",
        "s3_options": {
            "endpoint": s3.endpoint,
            "region": "us-east-1",
            "access_key": s3.access_key,
            "secret_key": s3.secret_key,
            "allow_http": True,
        },
    }
    result = await example.use_a_fetcher(example.recipe, **where)
    assert (result.processed_count, result.stats.completed) == (2, 2)
    again = await example.use_a_fetcher(
        SimpleNamespace(**runpy.run_path(str(PROGRAM))).recipe, **where
    )
    assert (again.processed_count, again.stats.completed) == (0, 2)
    async with await create_fetcher_config(**where) as config:
        queue = KVStoreQueue(config.kv_store, "fetch:my_run", RequestMetaSerializer())
        assert (await queue.stats()).completed == 2
        await queue.close()


def test_as_a_program_it_goes_on_where_it_was(tmp_path: Path) -> None:
    for now in (2, 0):
        ran = subprocess.run(
            [sys.executable, "-W", "error", PROGRAM],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.endswith(f"{now} pages now, 2 in all\n")


async def test_without_a_store_it_says_so(example: SimpleNamespace) -> None:
    """In the words of the specification, and as the ``ValueError`` that it raises."""
    plan = FetchPlan(recipe=example.recipe, context=FetchRunContext(run_id="my_run"))
    with pytest.raises(ConfigurationError) as caught:
        await Fetcher().run(plan)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == "kv_store is required for persistent queue"


async def test_a_config_has_a_store_and_a_storage(tmp_path: Path) -> None:
    async with await create_fetcher_config(storage_type="file", file_path=tmp_path) as config:
        assert isinstance(config, FetcherConfig)
        assert isinstance(config.storage, FileStorage)
        await config.kv_store.put("key", 1)
        assert await config.kv_store.get("key") == 1
    async with await create_fetcher_config(kv_store_type="memory") as config:
        assert config.storage is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"storage_type": "tape"}, "storage_type must be 'file' or 's3', not 'tape'"),
        ({"storage_type": "file"}, "file_path is required"),
        ({"storage_type": "s3"}, "s3_url is required"),
        ({"kv_store_type": "paper"}, "paper"),
    ],
)
async def test_a_config_that_cannot_be(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        await create_fetcher_config(**given)  # type: ignore[arg-type]


async def test_a_fetcher_keeps_nothing_between_runs(tmp_path: Path) -> None:
    """One object, two runs, one after the other."""
    fetcher = Fetcher()
    for run_id in ("one", "other"):
        recipe: FetcherRecipe = runpy.run_path(str(PROGRAM))["recipe"]
        config = await create_fetcher_config(storage_type="file", file_path=tmp_path / run_id)
        async with config:
            result = await fetcher.run(FetchPlan(recipe, FetchRunContext(run_id, config)))
        assert (result.processed_count, result.context.run_id) == (2, run_id)
