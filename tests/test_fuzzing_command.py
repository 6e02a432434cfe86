"""``python -m tests.fuzz`` itself: it counts, it finds, and it says how to see it again."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests import fuzz
from tests.evidence import load
from tests.reliability.progress import Teller


def test_bad_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--minutes", "0"], ["--minutes", "x"], ["--seed", "x"], ["--nonsense"]):
        with pytest.raises(SystemExit) as ended:
            fuzz.main(words)
        assert ended.value.code == 2
    assert "no number of minutes" in capsys.readouterr().err


def test_examples_are_counted_and_failures_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "targets", lambda: {"test_one": 100, "test_other": 52})
    said = "- 150 passing examples, 0 failing examples, 3 invalid examples\n- 1 passing, 1 failing"
    assert fuzz._judged(0, said, 7, "") == fuzz.Round(152, 152)
    failed = fuzz._judged(
        1, f"Falsifying example: x=1\n= Hypothesis Statistics =\n{said * 999}", 7, ""
    )
    assert failed.examples == 152 * 999
    assert failed.failure is not None
    assert "--hypothesis-seed=7 ended with 1" in failed.failure
    assert "Falsifying example" in failed.failure
    assert "did not end" in (fuzz._judged(None, "", 7, "").failure or "")


def test_a_round_that_tries_too_little_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "targets", lambda: {"test_one": 100, "test_other": 52})
    said = "tests/test_fuzz_x.py::test_one:\n- 151 passing, 0 failing"
    assert "after 151 examples of 152" in (fuzz._judged(0, said, 7, "").failure or "")
    assert fuzz._judged(0, said, 7, "one") == fuzz.Round(151, 100)


def test_every_fuzzing_test_says_how_many_it_wants() -> None:
    found = fuzz.targets()
    decorated = sum(file.read_text().count("@fuzzed(") for file in fuzz._files())
    assert len(found) == decorated >= 48
    assert min(found.values()) >= 1


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_round_that_fails_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    rounds = iter([fuzz.Round(5, 5), fuzz.Round(5, 6, "broken" if is_broken else None)])
    clock = iter([0.0, 0.0, 10.0, 1e9, 1e9])
    monkeypatch.setattr(fuzz, "_round", lambda *_: next(rounds))
    monkeypatch.setattr("tests.fuzz.time.monotonic", lambda: next(clock, 1e9))
    code = fuzz.main(["--minutes", "1", "--seed", "3", "--json", str(tmp_path / "figures.json")])
    assert code == is_broken
    kept = load(tmp_path / "figures.json")
    figures = {figure.what: figure.value for figure in kept}
    assert figures["examples tried"] == 10
    assert {figure.bound for figure in kept} == {"≥ 11", "= 0"}
    assert figures["that broke a promise or raised a foreign error"] == is_broken


def test_a_round_tries_examples_of_what_was_asked_for() -> None:
    """For real: the smallest of them."""
    end = time.monotonic() + 60
    teller = Teller(sys.stderr)
    found = fuzz._round("test_retry_after", 1, end, teller, "round 1")
    assert found.failure is None
    assert found.examples >= found.wanted >= 100
