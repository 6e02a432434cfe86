"""The search for secrets after every test: that it is made, and that it finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.canaries import KNOWN

TEST = """
import logging
def test_log(): logging.getLogger("x").warning("the password is {secret}")
def test_print(): print("{secret}")
def test_innocent(): print("nothing")
"""
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("secret", [KNOWN[0]])
def test_a_test_that_tells_a_secret_fails(tmp_path: Path, secret: str) -> None:
    (tmp_path / "test_it.py").write_text(TEST.format(secret=secret))
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_runtest_makereport as pytest_runtest_makereport\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null",
         "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True, text=True, timeout=120, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert "a secret was logged or printed" in done.stdout
