"""The faults, by number: how each is brought about, and what must hold meanwhile and afterwards.

``by`` names the commands of their own (see commands.py) that show a row; the others are shown by
tests alone. The account of a whole run is closed everywhere: what was accepted is completed, dead
or still queued; nothing is lost, nothing appears that nobody sent, and whatever was done twice has
a cause that was noted.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    id: str
    title: str
    injected: str
    must_hold: str
    by: tuple[str, ...] = ()


SECTIONS: dict[str, tuple[Fault, ...]] = {
    "Processes and stores that die": (
        Fault(
            "F1",
            "A worker is killed while it works",
            "SIGKILL to worker processes, again and again, on SQLite and on Redis",
            "the account closes; redelivered within 1.5 leases; only what was in flight again",
            (
                "chaos short",
                "chaos long",
                "chaos long on SQLite",
                "chaos scale",
                "chaos scale on SQLite",
                "soak",
                "soak on SQLite",
            ),
        ),
        Fault(
            "F2",
            "Redis is killed, every write synced",
            "SIGKILL under load with `appendfsync always`, started again after up to 5 s (a step "
            "that it tore is cut off first, see the guarantees)",
            "nothing is lost; clients are back within 2 s of the server",
            ("chaos short", "chaos long", "soak"),
        ),
        Fault(
            "F3",
            "Redis is killed, synced every second, on a slow disk",
            "strace delays fdatasync; SIGKILL",
            "only what came within the last 2.1 s is lost, and it is told as such",
        ),
        Fault(
            "F4",
            "Workers, producers and Redis are killed together",
            "SIGKILL to all of them at once, then all start again",
            "the account closes; no key is accepted twice",
            ("chaos short", "chaos long", "chaos long on SQLite"),
        ),
        Fault(
            "F5",
            "Redis comes back empty",
            "FLUSHALL; killed, its files removed, started",
            "`StoreLost`; an empty queue never passes for a finished run",
        ),
        Fault(
            "F6",
            "A failover that forgets acknowledged writes",
            "the replica is cut off, the master killed, the replica promoted",
            "lost is at most what had not reached the replica; no token is used twice",
        ),
        Fault(
            "F7",
            "The client is left with a read-only replica",
            "the roles are swapped under it",
            "the new master is found within 3 s, and no caller is failed before its time is up",
        ),
        Fault(
            "F8",
            "The server forgets its scripts",
            "SCRIPT FLUSH, ten times a second",
            "no caller notices",
        ),
        Fault(
            "F39",
            "The append-only file is cut short or damaged",
            "its last bytes removed; a length overwritten",
            "the last command is lost at most; a server that refuses to start is an outage, not an "
            "empty queue",
        ),
        Fault(
            "F41",
            "A cluster moves a slot, a node dies",
            "six nodes on loopback: slots moved under load, as a reshard does it; SIGKILL",
            "the account closes; no command ever reaches across slots",
        ),
    ),
    "The network between": (
        Fault(
            "F9",
            "The reply is lost, the command was done",
            "a proxy forwards the request and closes, for each script of each verb in turn",
            "each verb takes effect once",
            ("chaos short", "chaos long", "soak"),
        ),
        Fault(
            "F10",
            "The request is lost",
            "a proxy drops it and closes, for each script of each verb in turn",
            "asked again, each verb takes effect once",
        ),
        Fault(
            "F11",
            "Cancelled at every await",
            "every public operation, cancelled at its 1st, 2nd, 3rd … suspension until it gets "
            "through",
            "every promise holds, no connection stays in use, no client is left on the server",
            ("simulation",),
        ),
        Fault(
            "F12",
            "A cancelled call leaves its reply to the next",
            "a slow proxy, a thousand calls cancelled, each asking for something of its own",
            "no reply reaches another caller",
        ),
        Fault(
            "F13",
            "Connections and files leak",
            "10,000 calls cancelled and 10,000 timed out",
            "open files and clients of the server are what they were, ± 2",
        ),
        Fault(
            "F14",
            "A black hole",
            "the proxy keeps connections open and lets no byte through",
            "every operation ends within its time-out and a tenth; the heart notices within half a "
            "lease",
        ),
        Fault(
            "F15",
            "Slow, uneven, in single bytes, at 10 KB/s",
            "the proxy delays, jitters, slices and throttles",
            "the account closes; the slowest of a hundred takes what was injected and 20 ms; no "
            "time-outs",
            ("chaos short", "chaos long", "soak"),
        ),
        Fault(
            "F16",
            "A reset in the middle of a reply",
            "RST after each number of bytes of a reply",
            "each verb takes effect once",
        ),
        Fault(
            "F17",
            "A network that comes and goes",
            "down for 200 ms, up for 300 ms, over and over",
            "the account closes; order within a lane is kept; no caller is told of it",
            ("chaos short", "chaos long", "soak"),
        ),
        Fault(
            "F40",
            "Strange replies",
            "the proxy answers LOADING, CLUSTERDOWN, MOVED, ASK, TRYAGAIN, NOAUTH, NOPERM, "
            "NOREPLICAS, garbage",
            "what passes is waited for, what will not is told at once, nothing foreign leaks",
        ),
        Fault(
            "F53",
            "Everybody comes back at once",
            "500 clients lose their connections together",
            "they spread out: at most twice the steady rate, and the server is not drowned",
        ),
    ),
    "Time and zombies": (
        Fault(
            "F24",
            "A worker that stood still comes back",
            "SIGSTOP for twice the lease, then SIGCONT",
            "its settlement is refused and changes nothing; one completion",
            ("simulation",),
        ),
        Fault(
            "F25",
            "A handler blocks the event loop",
            "`time.sleep` for several leases, with another process on the same run",
            "each request is delivered at most once more; a warning names the task while it lasts, "
            "and both sides are told",
        ),
        Fault(
            "F26",
            "The server's clock is set",
            "+60 s, −1 h and a storm of steps, by libfaketime",
            "no lease is lost or stuck; no delay is early by more than a second of that clock",
        ),
        Fault(
            "F27",
            "The clocks of the workers differ",
            "each an hour off, or ten years, on Redis and in the simulation",
            "nothing changes: the trace of a whole run has the same hash",
            ("simulation",),
        ),
    ),
    "Bad records, full disks, wrong settings": (
        Fault(
            "F32",
            "A request that kills its process",
            "the handler calls `os._exit`",
            "buried at `max_deaths`, alone; the others keep four fifths of their throughput",
            ("chaos poison", "chaos short", "chaos long", "chaos long on SQLite"),
        ),
        Fault(
            "F33",
            "A record that cannot be read",
            "garbage, and a flipped bit in every stored field",
            "what fails its checksum is a dead letter `corrupt` with its bytes (counts and "
            "instants, which change at every move, are not in it); the queue moves on",
        ),
        Fault(
            "F34",
            "Redis is out of memory",
            "CONFIG SET maxmemory under load",
            "new requests are refused with `StoreFull`; settlements, beats and sweeps all pass; it "
            "recovers by itself",
            ("chaos short", "chaos long", "soak"),
        ),
        Fault(
            "F35",
            "Redis may evict keys",
            "`maxmemory-policy allkeys-lru`",
            "refused at the start",
        ),
        Fault(
            "F36",
            "A foreign value under our keys",
            "SET over each of them in turn",
            "`StoreCorrupt`, no half write, as many requests as before",
        ),
        Fault(
            "F37",
            "A script that does not end",
            "a batch of a million; another client's `while true`",
            "batches are cut to size; back within a second of its end",
        ),
        Fault(
            "F38",
            "Redis cannot write its file",
            "its disk of 4 MB is filled up under load",
            "such a server refuses to settle as well: an outage, told as one, over when there is "
            "room; with `always`, as F2",
        ),
        Fault(
            "F42",
            "Another process locks the SQLite file",
            "`BEGIN EXCLUSIVE` for 1, 4 and 10 s",
            "waited for within the budget, then a typed error; the event loop lags less than 50 ms",
        ),
        Fault(
            "F43",
            "The disk below SQLite is full",
            "a 1 MB file system; `max_page_count`",
            "new requests are refused, settlements pass from the reserve; opens again",
            ("chaos short", "chaos long on SQLite", "soak on SQLite"),
        ),
        Fault(
            "F44",
            "Reading, writing or syncing fails",
            "reads, writes and syncs that fail (EIO), writes cut short, the power cut after failed "
            "syncs",
            "nothing is acknowledged that is not on disk; the file stays sound; it is used again "
            "only after all checks",
            ("power",),
        ),
        Fault(
            "F45",
            "A power cut at any write",
            "every write recorded, what was not synced forgotten, torn, reordered: 10,000 cuts",
            "`FULL` loses nothing it acknowledged; `NORMAL` keeps a prefix; never corrupt",
            ("power",),
        ),
        Fault(
            "F46",
            "The SQLite file is deleted, replaced, of another version, damaged",
            "by hand: also without its -wal, in a read-only folder, opened by what seems another "
            "host",
            "noticed and refused, not a byte of it changed, never quietly made anew",
        ),
        Fault(
            "F47",
            "SQLite's WAL-reset race",
            "two processes write and checkpoint on a version before 3.51.3",
            "one writer at a time; the file stays sound",
            ("WAL race",),
        ),
        Fault(
            "F48",
            "No files, memory or disk left for the process",
            "prlimit on open files and address space",
            "typed errors, recovery when lifted, no lease lost",
        ),
    ),
    "Load, fairness, order": (
        Fault(
            "F49",
            "Ten thousand lanes, and one that is far too full",
            "10,000 lanes of which one holds a million",
            "Jain's index of what they get ≥ 0.95; nobody waits for more than two rounds; lanes "
            "that are empty leave nothing",
            ("crowds", "crowds on SQLite"),
        ),
        Fault(
            "F50",
            "A flood of urgent requests",
            "one that can wait, then a million urgent ones",
            "it is served as soon as their head start is used up",
            ("crowds", "crowds on SQLite"),
        ),
        Fault(
            "F51",
            "Impossible delays",
            "−1, 0, 1 ms, 10 years, NaN, inf, 2⁶³",
            "refused, or never early and at most a tick late",
        ),
        Fault(
            "F52",
            "Two hundred bring one key at once",
            "together, from tasks and processes, on every store",
            "one request, and all are told its id",
        ),
        Fault(
            "F54",
            "Asked to stop under load",
            "SIGTERM and SIGINT, twice, while it drains, at any instant",
            "ends within its grace; nothing stays leased, nothing is lost; exit code 75",
            ("chaos short", "chaos long", "chaos long on SQLite", "soak", "soak on SQLite"),
        ),
        Fault(
            "F55",
            "Another version wrote the data",
            "a forged layout version, on every store",
            "refused or migrated, never misread",
        ),
        Fault(
            "F68",
            "A crawl is killed and typed again",
            "`kill -9` at 20 instants, alone and one of three processes, on SQLite and Redis",
            "no page is lost, none but those in flight is fetched again, and the frontier is that "
            "of a crawl left alone",
        ),
    ),
    "Hostile input": (
        Fault(
            "F56",
            "A page leads to a private address",
            "literals in every spelling, redirects, names that resolve to one or change their mind",
            "no connection at a listener that counts them",
        ),
        Fault(
            "F57",
            "Bombs",
            "endless bodies, lying lengths, gzip and brotli bombs, slow drips, redirect loops",
            "memory stays within its cap and 16 MB, time within the time-out; a reason is kept",
        ),
        Fault(
            "F59",
            "Names that try to break out",
            "run ids, lanes and keys with every character that means something somewhere",
            "refused or kept as they are; no run ever touches another",
        ),
        Fault(
            "F64",
            "Secrets in what we tell",
            "a canary as password, header and token, in logs, errors, dead letters and reprs; what "
            "any test prints is searched for it, too",
            "not found once",
        ),
        Fault(
            "F65",
            "TLS that must not be trusted",
            "expired, of another host, self-signed, downgraded: of Redis and of pages",
            "refused, without falling back",
        ),
    ),
    "The tiers": (
        Fault(
            "SIM",
            "Simulation",
            "10,000 seeds of a virtual world around the real queue: crashes, partitions, skewed "
            "clocks, lost messages, cancellations",
            "no promise is broken; every deliberately broken variant is found within 2,000 seeds",
            ("simulation", "simulation small"),
        ),
        Fault(
            "TIER-SHORT",
            "The load of every change",
            "5,000 requests, 4 processes of 25 workers; 10 of them and Redis 3 times killed, 1,000 "
            "cancels",
            "the account closes within 90 s, every repetition has a cause",
            ("chaos short",),
        ),
        Fault(
            "TIER-LONG",
            "Half an hour",
            "200,000 requests, 20 processes, 5 producers; kills, outages, flapping, lost replies, "
            "poison",
            "the account closes; at most 1 % delivered again by kills and outages (counted apart: "
            "what a poison takes with it each of five times, and what is given back by a process "
            "that is stopped), and at most 1 % handled to the end again, whatever the cause; "
            "drained two leases after the last fault; enqueue p99 ≤ 50 ms outside outages (on "
            "SQLite, with one writer at a time, 0.25 s)",
            ("chaos long", "chaos long on SQLite"),
        ),
        Fault(
            "TIER-SOAK",
            "An hour",
            "150,000 requests, 6 processes of which 2 are left alone, 2 producers; kills, outages, "
            "a full store, flapping, lost and late replies",
            "the account closes; who lives long does not grow",
            ("soak", "soak on SQLite"),
        ),
        Fault(
            "TIER-SCALE",
            "A million requests",
            "1,000,000 queued, 1,000 workers in a process, 20 processes, a kill every second",
            "a lease costs at most twice what it does with ten thousand; enqueue p99 ≤ 50 ms (on "
            "SQLite, with one writer at a time, 0.25 s while twenty processes drain it)",
            ("chaos scale", "chaos scale on SQLite"),
        ),
        Fault(
            "FUZZ",
            "Fuzzing",
            "Hypothesis on records, serializers, URLs, robots.txt, HTML and the replies of Redis",
            "round trips and typed errors, never a foreign one",
            ("fuzz",),
        ),
        Fault(
            "MUT",
            "Mutation testing",
            "the pure modules and the transactional engine, one small change at a time",
            "fewer than one change in ten survives the tests, and each survivor has been looked at",
            ("mutations",),
        ),
    ),
}

CATALOGUE: dict[str, Fault] = {fault.id: fault for rows in SECTIONS.values() for fault in rows}
