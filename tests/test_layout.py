"""What stores keep, byte by byte: a run that was begun by another version must still be read.

Whoever changes one of these changes the layout, and what was stored before is lost to them.
"""

from __future__ import annotations

import pytest

from data_fetcher_core.core import Failure
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue.engine import (
    Addition,
    Admission,
    Admitted,
    Move,
    NewRequest,
    Op,
    Outcome,
    Settled,
    Settlement,
)
from data_fetcher_core.queue.identity import id_from_key, random_id, seen_from_key
from data_fetcher_core.queue.keys import KINDS, Keys, op_slot
from data_fetcher_core.queue.lane_state import LaneState, QueueState, decode_lane, decode_state
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from data_fetcher_core.queue.outcomes import (
    pack_admitted,
    pack_settled,
    unpack_admitted,
    unpack_settled,
)
from data_fetcher_core.queue.records import Record, decode, pack_failures, unpack_failures
from data_fetcher_core.queue.run_meta import LAYOUT, new_meta, read_meta
from data_fetcher_core.queue.tokens import token_at, token_base
from data_fetcher_core.testing import ManualClock
from tests.harness import everything


def u64(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8) for number in numbers)


def test_a_record() -> None:
    failures = (Failure("Kind", "message", 1.5),)
    history = pack_failures(failures)
    record = Record(b"id", b"lane", b"key", 4, b"body", 1, 2, 3, 4, history, compressed=True)
    raw = (
        b"\x01\x01\x04\x02\x00\x01\x00\x02" + u64(3, 4) + b"\x00\x04\x00\x03\x00\x00\x00\x18"
        b'\x00\x00\x00\x04\xdf\x4a\x05\xedidlanekey[["Kind","message",1.5]]body'
    )
    assert record.encode() == raw
    assert decode(raw) == record
    assert unpack_failures(history) == failures
    assert pack_failures(()) == b""
    assert unpack_failures(b"") == ()


def test_the_keys_of_an_ordered_store() -> None:
    keys = OrderedKeys(b"fetch:r")
    run, client = b"qv8\x9a\xec\xe7=\x8d^", b"\xda\xde\x18\x03k\x8b0\xc9\xaf\x89\x94\xe5"
    assert keys.first_meta == b"q\x00\x07fetch:rM"
    assert {name: key for name, key in vars(keys).items() if name != "first_meta"} == {
        "all": run,
        "meta": run + b"M",
        "state": run + b"S",
        "ring": run + b"n",
        "parked": run + b"p",
        "alarms": run + b"g",
        "ready_lists": run + b"r",
        "delayed_requests": run + b"d",
        "dead_letters": run + b"D",
        "leases": run + b"x",
        "consumers": run + b"c",
        "ops": run + b"o",
        "seen_keys": run + b"s",
        "marks": run + b"k",
        "lanes": run + b"l",
        "checkpoints": run + b"C",
        "results": run + b"R",
    }
    assert keys.lane(b"lane") == run + b"llane"
    assert keys.turn(1, parked=False) == run + b"n" + u64(1)
    assert keys.turn(1, parked=True) == run + b"p" + u64(1)
    assert keys.alarm(2, b"lane") == run + b"g" + u64(2) + b"lane"
    assert keys.ready(b"lane", 3, 4) == run + b"r\x00\x04lane\x03" + u64(4)
    assert keys.ready(b"lane", 3, 4).startswith(keys.list(b"lane", 3))
    assert keys.delayed(5, 6) == run + b"d" + u64(5, 6)
    assert keys.dead(7, 8) == run + b"D" + u64(7, 8)
    assert keys.lease(b"c", b"token") == run + b"x" + client + b"token"
    assert keys.lease(b"c", b"token").startswith(keys.leases_of(b"c"))
    assert keys.consumer(b"c") == run + b"cc"
    assert keys.op(b"c", "add") == run + b"o" + client + b"add"
    assert keys.op(b"c", "add").startswith(keys.ops_of(b"c"))
    assert (keys.seen_after(0), keys.seen_after(258)) == (run + b"s\0", run + b"s\2\1\2")
    assert keys.mark(b"id") == run + b"kid"
    assert (keys.checkpoint(b"n"), keys.result(9)) == (run + b"Cn", run + b"R" + u64(9))


def test_the_keys_of_redis() -> None:
    keys, run = Keys("p:", "fetch:{r%}"), b"p:{fetch:%7Br%25%7D}:"
    assert {name: keys.named(name) for name in KINDS} == {n: run + n.encode() for n in KINDS}
    stems = ("ready_of", "seen_of", "leased_of", "wake_of")
    assert [keys.stem(name) for name in stems] == [
        run + b"ready:",
        run + b"seen:",
        run + b"leased:",
        run + b"wake:",
    ]
    assert (keys.leased(b"c"), keys.wake(b"l")) == (run + b"leased:c", run + b"wake:l")
    assert op_slot(b"c", "add") == b"c:add"
    with pytest.raises(ConfigurationError, match=r"^namespace must be a non-empty string$"):
        Keys("p:", "")


def test_the_state_of_a_lane_and_of_a_queue() -> None:
    lane = LaneState(b"lane", [0, 1, 2, 3, 4, 5, 6], 7, 8, 9, 10, 11, 12, 13, 14, True, 16)
    packed = u64(*range(1, 15)) + b"\x01" + u64(16)
    assert lane.encode() == packed
    assert decode_lane(b"lane", packed) == lane
    assert decode_lane(b"lane", None) == LaneState(b"lane")
    state = QueueState(*range(1, 20))
    assert state.encode() == u64(*range(1, 20))
    assert decode_state(state.encode()) == state
    assert decode_state(None) == QueueState()


def test_what_is_remembered_of_a_key() -> None:
    assert id_from_key(b"a") == b"1ba3c523e770f3313cc91ab1"
    assert seen_from_key(b"") == b"k"
    assert seen_from_key(b"z" * 32) == b"k" + b"z" * 32
    assert seen_from_key(b"0123456789abcdef" * 2) == b"x" + b"\x01#Eg\x89\xab\xcd\xef" * 2
    assert seen_from_key(b"ab" * 15) == b"k" + b"ab" * 15
    digest = "4c6a0d1c39d744f3bc386d54b9bc99752fa1f8fccc5db08ff30d1804b1f71c07"
    assert seen_from_key(b"a" * 33) == b"d" + bytes.fromhex(digest)


def test_ids_that_nobody_chose() -> None:
    ids = {random_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(bytes.fromhex(one.decode())) == 12 for one in ids)


def test_tokens() -> None:
    base = token_base(Op(b"c", 5), b"secret")
    assert base[:4] == b"\x00\x00\x00\x05"
    assert token_base(Op(b"c", 5 + 2**32), b"secret")[:4] == b"\x00\x00\x00\x05"
    assert token_at(base, 3) == base + b"\x00\x00\x00\x03"
    others = [Op(b"c", 6), Op(b"d", 5), Op(b"c", 5 + 2**32)]
    unique = {token_base(op, b"secret")[4:] for op in others} | {token_base(others[0], b"x")[4:]}
    assert len(unique - {base[4:]}) == 4
    assert {len(one) for one in unique} == {8}


def test_what_is_known_of_a_run() -> None:
    raw = b'{"layout":4,"namespace":"fetch:r","generation":"g","options":{}}'
    assert LAYOUT == 4
    assert new_meta(b"fetch:r", "g") == raw
    assert read_meta(raw, b"fetch:r")["generation"] == "g"
    generations = {read_meta(new_meta(b"r"), b"r")["generation"] for _ in range(9)}
    assert {len(bytes.fromhex(one)) for one in generations} == {12}
    assert len(generations) == 9


def test_what_an_operation_answered() -> None:
    requests = [NewRequest(b"a", b""), NewRequest(b"b", b""), NewRequest(b"c", b"")]
    admitted = [
        Admitted(Admission.NEW, b"a"),
        Admitted(Admission.DUPLICATE, b"other"),
        Admitted(Admission.FULL, b"c"),
    ]
    assert pack_admitted([admitted, []]) == b'[[[1,2,3],["other"]],[[],[]]]'
    additions = [Addition(requests), Addition()]
    assert unpack_admitted(pack_admitted([admitted, []]), additions) == [admitted, []]
    settled = [Settled(Outcome.DONE, admitted), Settled(Outcome.LOST)]
    assert pack_settled(settled) == b'[[1,[[1,2,3],["other"]]],[2,[[],[]]]]'
    # What is lost brought nothing in, whatever it was to bring.
    settlements = [Settlement(b"t", Move.COMPLETE, addition=additions[0]) for _ in settled]
    assert unpack_settled(pack_settled(settled), settlements) == [settled[0], (Outcome.LOST, [])]


async def test_values() -> None:
    clock = ManualClock()
    store, at = MemoryStore(clock=clock), round(clock.store_now() * 1e6)
    await store.put("key", 1, prefix="p")
    await store.put("brief", [2], ttl=1.5)
    kept, brief = b"v\x00\x00\x00\x01pkey", b"v\x00\x00\x00\x00brief"
    ends = u64(at + 1_500_000)
    assert await everything(store) == {
        kept: u64(0) + b"1",
        brief: ends + b"[2]",
        b"x" + ends + brief: b"",
    }
