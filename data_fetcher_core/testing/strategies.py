"""What to feed a queue: small worlds, so that things meet."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from data_fetcher_core.testing.texts import AWKWARD_TEXTS

LANES = ("", "a", "b", "c")
KEYS = ("k1", "k2", "k3", "k4", "k5")


class Draft(NamedTuple):
    """A request to be, before it has an id."""

    lane: str
    key: str | None
    priority: int
    delay: float
    expires_in: float | None
    own_id: bool


lanes = st.sampled_from(LANES)
lane_lists = st.lists(lanes, max_size=3, unique=True)
durations = st.sampled_from([0.5, 1.0, 2.0, 5.0, 61.0])
delays = st.one_of(st.just(0.0), durations)
priorities = st.integers(1, 6)
counts = st.integers(1, 5)
drafts = st.builds(
    Draft,
    lane=lanes,
    key=st.one_of(st.none(), st.sampled_from(KEYS)),
    priority=priorities,
    delay=st.one_of(st.just(0.0), durations),
    expires_in=st.one_of(st.none(), st.none(), durations),
    own_id=st.booleans(),
)
batches = st.lists(drafts, min_size=1, max_size=5)

awkward_texts = st.one_of(
    st.sampled_from(AWKWARD_TEXTS),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
