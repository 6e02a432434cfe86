"""A storage by its path or its URL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.storage import FileStorage, S3Storage, create_storage


def test_nothing_stores_nothing() -> None:
    assert create_storage(None) is None


@pytest.mark.parametrize("place", ["out", Path("out"), "./odd://name", "s3"])
def test_a_path_is_a_directory(place: str | Path) -> None:
    storage = create_storage(place, fsync=True)
    assert isinstance(storage, FileStorage)
    assert repr(storage) == f"FileStorage({str(Path(place).absolute())!r})"


@pytest.mark.parametrize("url", ["s3://bucket/a/b", "S3://bucket/a/b/"])
def test_a_bucket(url: str) -> None:
    storage = create_storage(url, fsync=True, region="eu-west-1")
    assert isinstance(storage, S3Storage)
    assert repr(storage) == "S3Storage('s3://bucket/a/b')"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("ftp://user:pass@host/x", "'ftp' is no scheme of a storage's URL"),
        ("file:///tmp/out", "use a directory"),
        ("", "is no directory"),
        ("s3://", "is no bucket's name"),
        ("s3:///prefix", "is no bucket's name"),
        ("s3://a b/prefix", "is no bucket's name"),
        ("s3://key:pass@bucket/prefix", "holds no credentials: set AWS_ACCESS_KEY_ID"),
    ],
)
def test_what_is_no_place(place: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        create_storage(place)
    assert "pass" not in str(caught.value)


def test_what_is_for_a_bucket_is_not_for_a_directory() -> None:
    with pytest.raises(ConfigurationError, match="endpoint, region is for a bucket"):
        create_storage("out", endpoint="https://example.org", region="x")


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="must begin with https://"):
        create_storage("s3://bucket", endpoint="example.org")
    with pytest.raises(ConfigurationError, match="endpoint holds no credentials") as caught:
        create_storage("s3://bucket", endpoint="https://me:pass@example.org")
    assert "pass@" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="go together"):
        create_storage("s3://bucket", access_key="AK")


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_the_library_is_loaded_only_when_used() -> None:
    script = (
        "import sys\n"
        "from data_fetcher_core.storage import create_storage\n"
        "create_storage('out')\n"
        "print([name for name in ('obstore', 'boto3', 'aiohttp', 'redis') if name in sys.modules])"
    )
    assert run(script) == "[]\n"


def test_without_the_extra_it_says_how_to_get_it() -> None:
    script = (
        "import sys; sys.modules['obstore'] = None\n"
        "from data_fetcher_core.storage import create_storage\n"
        "try:\n    create_storage('s3://bucket')\n"
        "except ValueError as error:\n    print(type(error).__name__, error)"
    )
    said = run(script)
    assert said.startswith("ConfigurationError ")
    assert "pip install 'data-fetcher-core[s3]'" in said
