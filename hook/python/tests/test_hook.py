"""The binding against the real library: ``python3 -m unittest discover hook/python/tests``.

The table is read back through this process's own memory, by the offsets of the ABI.
"""

import ctypes
import logging
import mmap
import os
import struct
import sys
import threading
import time
import unittest
from unittest import mock

import inflightd_hook
from inflightd_hook import _library, open_worker

HEADER_WORDS, THREADS, THREAD_WORDS, ENTRIES, ENTRY_WORDS = 512, 256, 8, 8192, 128
APPENDS, REMOVALS, BEATS, STALE, GAUGES = 168, 169, 161, 171, 176
EARLY = 5  # of a thread slot
STATE, ROOM, EXPECTED, OUTCOME, PHASE = 1, 2, 4, 7, 9
POSTS, POSTED_BYTES, DONES, DONE_BYTES, FAILURES, RID, TRACE, PEERS = 10, 11, 12, 13, 14, 24, 33, 41
TEXT = struct.Struct("<Q")
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Mute:
    """A value that shows itself to nobody."""

    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __index__ = __hash__ = __str__


def mappings():
    with open("/proc/self/maps") as maps:
        return [line.split()[0] for line in maps if "/memfd:inflight" in line]


class Table:
    """The table of the worker opened last, found as the agent finds it."""

    def __init__(self, known):
        (self.range,) = set(mappings()) - set(known)
        file = os.open(f"/proc/self/map_files/{self.range}", os.O_RDONLY)
        self.words = mmap.mmap(file, 0, prot=mmap.PROT_READ)
        os.close(file)

    def word(self, at):
        return struct.unpack_from("<Q", self.words, at * 8)[0]

    def entry(self, seq, at):
        slot = seq & 0x3FFF
        return self.word(HEADER_WORDS + THREADS * THREAD_WORDS + ENTRIES + slot * ENTRY_WORDS + at)

    def seqs(self):
        """Sequences of what is open, the oldest first."""
        first = HEADER_WORDS + THREADS * THREAD_WORDS + ENTRIES
        states = (self.word(first + slot * ENTRY_WORDS + STATE) for slot in range(ENTRIES))
        return sorted(state >> 2 for state in states if state & 3 == 1)

    def count(self, seq, at):
        return self.entry(seq, at) & ((1 << 48) - 1)

    def text(self, seq, at):
        length = self.entry(seq, at)
        words = (self.entry(seq, at + 1 + i) for i in range((length + 7) // 8))
        return b"".join(struct.pack("<Q", word) for word in words)[:length].decode()


def opened(role="prefill", **options):
    known = mappings()
    worker = open_worker(role, "unittest", "1.0", **options)
    assert worker.is_on
    return worker, Table(known)


class RoundTrip(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker, cls.table = opened(
            ranks={"tp": (1, 4), "dp": (0, 1)},
            nnodes=2,
            identities=[("nixl_agent", "prefill-0"), ("endpoint", "10.0.0.1:8998")],
        )

    def test_what_is_said_is_in_the_table(self):
        w, t = self.worker, self.table
        seq = w.append(
            2**64 - 1, "rid-é", peers=[("mooncake_session", "host:1")], expected_bytes=1 << 40
        )
        w.phase(seq, "transferring")
        self.assertIs(w.serve(seq), True)
        w.post(seq, 100)
        w.done(seq, 60, True)
        w.done(seq, 40, False)
        w.serve_end()
        self.assertEqual(t.entry(seq, STATE), seq << 2 | 1)
        self.assertEqual((t.entry(seq, ROOM), t.entry(seq, EXPECTED)), (2**64 - 1, 1 << 40))
        self.assertEqual(t.text(seq, RID), "rid-é")
        self.assertEqual((t.entry(seq, PEERS), t.entry(seq, PEERS + 1)), (1, 2))
        self.assertEqual(t.text(seq, PEERS + 2), "host:1")
        counts = [t.count(seq, at) for at in (POSTS, POSTED_BYTES, DONES, DONE_BYTES, FAILURES)]
        self.assertEqual(counts, [1, 100, 2, 60, 1])
        self.assertEqual(t.count(seq, PHASE), 3)
        w.remove(seq, "aborted")
        self.assertEqual(t.entry(seq, STATE), seq << 2 | 3)
        self.assertEqual(t.entry(seq, OUTCOME), 3)

    def test_every_name_has_its_number(self):
        for name, number in _library.PHASES.items():
            seq = self.worker.append(1, "r")
            self.worker.phase(seq, name)
            self.assertEqual(self.table.count(seq, PHASE), number)
        for name, number in _library.OUTCOMES.items():
            seq = self.worker.append(1, "r")
            self.worker.remove(seq, name)
            self.assertEqual(self.table.entry(seq, OUTCOME), number)

    def test_every_gauge_has_its_word(self):
        for value, (name, number) in enumerate(_library.GAUGES.items()):
            self.worker.gauge(name, value)
            self.assertEqual(self.table.word(GAUGES + number), value + 1)

    def test_a_beat_is_counted(self):
        before = self.table.word(BEATS)
        self.worker.beat()
        self.assertEqual(self.table.word(BEATS), before + 1)

    def test_odd_but_allowed_values_are_taken(self):
        w, t = self.worker, self.table
        peers = [("endpoint", f"h{i}") for i in range(40)]
        seq = w.append(True, None, peers=peers, traceparent=TRACEPARENT)
        self.assertEqual((t.entry(seq, ROOM), t.entry(seq, PEERS)), (1, 32))
        w.remove(w.append(2, 7, peers=[("nixl_agent", b"\xff")], traceparent=""), "success")
        self.assertEqual(t.text(seq, TRACE), TRACEPARENT)
        w.remove(seq, "success")
        late = t.word(STALE)
        w.post(seq, 1)
        w.remove(seq, "failed")
        self.assertEqual(t.word(STALE), late + 2)
        self.assertEqual(t.entry(seq, OUTCOME), 1)


class BadValues(unittest.TestCase):
    def test_each_names_the_field_and_what_is_allowed(self):
        w, _table = opened()
        cases = [
            (lambda: open_worker("router", "e", "1"), "role is 'router'.*prefill, decode"),
            (lambda: open_worker("prefill", "e", "1", ranks={"ep": (0, 1)}), "'ep'.*dp, pp, tp, cp"),
            (lambda: open_worker("prefill", "e", "1", ranks={"tp": 3}), r"ranks\['tp'\] is 3.*index"),
            (lambda: open_worker("prefill", "e", "1", ranks={"tp": (2, 2)}), "below the size"),
            (lambda: open_worker("prefill", "e", "1", nnodes=-1), "nnodes is -1.*from 0"),
            (lambda: open_worker("prefill", "e", "1", identities=[("a", "b")]), "kind in identities"),
            (lambda: w.append(-1, "r"), "room is -1.*from 0 to 18446744073709551615"),
            (lambda: w.append(2**64, "r"), "room is 18446744073709551616"),
            (lambda: w.append("7", "r"), "room is '7'"),
            (lambda: w.append(1, "r", peers=[("tcp", "x")]), "kind in peers is 'tcp'.*nixl_agent"),
            (lambda: w.append(1, "r", peers="ab"), "peers is 'ab'.*kind, value"),
            (lambda: w.append(1, "r", expected_bytes=1.5), "expected_bytes is 1.5"),
            (lambda: w.serve(None), "seq is None"),
            (lambda: w.post(1, -5), "nbytes is -5"),
            (lambda: w.gauge("kv", 1), "name is 'kv'.*kv_free, kv_total"),
            (lambda: w.phase(1, "done"), "name is 'done'.*parked, peers_ready, transferring, failed"),
            (lambda: w.remove(1, "ok"), "outcome is 'ok'.*success, failed, aborted, requeued"),
            (lambda: w.remove(1, ["success"]), "outcome is"),
            (lambda: w.remove(1, Mute()), "outcome is a Mute: allowed"),
            (lambda: open_worker("prefill", Mute(), "1"), "engine is a Mute, which has no text"),
            (lambda: open_worker("prefill", "e", "1", ranks={"tp": Mute()}), "'tp'.* is a Mute"),
            (lambda: open_worker("prefill", "e", "1", ranks=[("tp", (0, 2))]), r"ranks is \[\('tp'"),
            (lambda: open_worker("prefill", "e", "1", ranks="tp"), "ranks is 'tp'.*dicts such as"),
            (lambda: open_worker("prefill", "e", "1", ranks=5), "ranks is 5: allowed are dicts"),
            (lambda: open_worker("prefill", "e", "1", ranks=0), "ranks is 0"),
            (lambda: w.append(1, Mute()), "rid is a Mute, which has no text"),
            (lambda: w.append(Mute(), "r"), "room is a Mute: allowed are the integers"),
            (lambda: w.append(1, "r", peers=[("nixl_agent", None)]), "value in peers is None.*str"),
            (lambda: w.append(1, "r", peers=[("nixl_agent", 5)]), "value in peers is 5"),
            (lambda: w.append(1, "r", traceparent="garbage"), "traceparent is 'garbage'.*55"),
            (lambda: w.append(1, "r", traceparent=TRACEPARENT + "0"), "traceparent is '00-4bf9"),
            (lambda: w.append(1, "r", traceparent=TRACEPARENT.upper()), "traceparent is '00-4BF9"),
            (lambda: w.append(1, "r", traceparent="ff" + TRACEPARENT[2:]), "traceparent is 'ff"),
            (lambda: w.append(1, "r", traceparent=f"00-{0:032}-{1:016}-00"), "traceparent is '00-0"),
            (lambda: w.done(1, 2, "no"), "ok is 'no': allowed are True and False"),
            (lambda: w.done(1, 2, None), "ok is None"),
            (lambda: w.done(1, 2, 1), "ok is 1"),
        ]
        for call, message in cases:
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                call()


    def test_what_was_refused_has_left_nothing_in_the_table(self):
        w, t = opened()
        for bad in ({"rid": Mute()}, {"rid": "r", "traceparent": "garbage"}):
            with self.assertRaises(ValueError):
                w.append(1, **bad)
        self.assertEqual((t.word(APPENDS), t.seqs()), (0, []))


class Off(unittest.TestCase):
    def test_a_closed_worker_is_off_and_its_calls_do_nothing(self):
        worker, _table = opened()
        worker.append(1, "r")
        worker.close()
        self.silent(worker)

    def silent(self, worker):
        self.assertFalse(worker.is_on)
        self.assertEqual(worker.append(5, "r", peers=[("endpoint", "a")]), 0)
        self.assertIs(worker.serve(1), True)
        for call in (worker.serve_end, worker.beat, worker.close):
            self.assertIsNone(call())
        self.assertIsNone(worker.post(1, 2))
        self.assertIsNone(worker.done(1, 2, True))
        self.assertIsNone(worker.phase(1, "failed"))
        self.assertIsNone(worker.remove(1, "failed"))

    def test_without_the_library_one_line_is_logged_and_nothing_is_done(self):
        absent = mock.patch.object(_library, "load", side_effect=OSError("no such file"))
        with absent, self.assertLogs("inflightd_hook", logging.WARNING) as logs:
            worker = open_worker("decode", "e", "1")
        self.assertEqual(len(logs.records), 1)
        self.assertIn("no such file", logs.output[0])
        self.silent(worker)

    def test_without_a_table_one_line_is_logged_and_nothing_is_done(self):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # No 8 MiB file may be made: fallocate fails.
                import resource
                import signal

                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
                handler = mock.Mock(level=logging.WARNING)
                logging.getLogger("inflightd_hook").addHandler(handler)
                library = _library.load()
                worker = inflightd_hook._worker.Worker(library, None)
                with mock.patch.object(_library, "load", return_value=library):
                    worker = open_worker("decode", "e", "1")
                assert not worker.is_on and handler.handle.call_count == 1
                self.silent(worker)
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


class Threads(unittest.TestCase):
    def test_many_threads_lose_nothing(self):
        w, t = opened()
        threads, rounds = 8, 500

        def work(first):
            for i in range(rounds):
                seq = w.append(first + i % 10, f"r{i}")
                assert w.serve(seq)
                w.post(seq, 10)
                w.done(seq, 10, True)
                w.serve_end()
                w.remove(seq, "success")
                w.beat()

        pool = [threading.Thread(target=work, args=(1000 * n,)) for n in range(threads)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        counts = [t.word(at) for at in (APPENDS, REMOVALS, BEATS, STALE)]
        self.assertEqual(counts, [threads * rounds] * 3 + [0])

    def test_a_thread_serves_under_its_own_id(self):
        w, t = opened()
        seq = w.append(1, "r")
        self.assertTrue(w.serve(seq))
        slot = HEADER_WORDS + threading.get_native_id() % THREADS * THREAD_WORDS
        self.assertEqual((t.word(slot), t.word(slot + 1)), (threading.get_native_id(), seq))


class Gil(unittest.TestCase):
    """A mark must not give the turn to another thread."""

    @classmethod
    def setUpClass(cls):
        cls.worker, _table = opened()

    def runs_of_another_thread(self, call, calls=20000):
        """How often another, ever ready thread got a turn while `call` was called."""
        turns, stop, ready = [0], threading.Event(), threading.Event()

        def other():
            ready.set()
            while not stop.is_set():
                turns[0] += 1
                time.sleep(0)  # takes its turn and gives it up again

        interval = sys.getswitchinterval()
        thread = threading.Thread(target=other)
        # From here on nobody is asked to give the GIL up: only who releases it loses it.
        sys.setswitchinterval(60)
        try:
            thread.start()
            ready.wait()
            before = turns[0]
            for _ in range(calls):
                call()
            during = turns[0] - before
        finally:
            stop.set()
            sys.setswitchinterval(interval)
            thread.join()
        return during

    def test_no_mark_releases_the_gil(self):
        w = self.worker
        seq = w.append(1, "r")
        calls = {
            "append and remove": lambda: w.remove(w.append(2, "r"), "success"),
            "serve": lambda: (w.serve(seq), w.serve_end()),
            "post and done": lambda: (w.post(seq, 1), w.done(seq, 1, True)),
            "phase": lambda: w.phase(seq, "parked"),
            "beat": w.beat,
        }
        for name, call in calls.items():
            with self.subTest(name):
                self.assertEqual(self.runs_of_another_thread(call), 0)

    def test_the_measurement_sees_a_released_gil(self):
        path = _library.load()._name
        released = ctypes.CDLL(path).inflight_beat
        released.argtypes = [ctypes.c_void_p]
        self.assertGreater(self.runs_of_another_thread(lambda: released(self.worker._handle)), 0)


class Fork(unittest.TestCase):
    def test_a_child_is_off_for_good(self):
        w, t = opened()
        seq = w.append(1, "r")
        counted = [t.word(at) for at in (APPENDS, BEATS, STALE)]
        child = os.fork()
        if child == 0:
            status = 1
            try:
                logging.getLogger("inflightd_hook").addHandler(logging.NullHandler())
                assert w.append(2, "r") == 0
                assert w.serve(seq) is True
                w.serve_end()
                w.post(seq, 1)
                w.done(seq, 1, True)
                w.phase(seq, "failed")
                w.remove(seq, "failed")
                w.beat()
                w.gauge("kv_free", 1)
                w.close()
                again = open_worker("prefill", "e", "1")
                assert not again.is_on and again.append(1, "r") == 0
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual([t.word(at) for at in (APPENDS, BEATS, STALE)], counted)
        self.assertEqual(t.entry(seq, STATE), seq << 2 | 1)


class Cost(unittest.TestCase):
    """Prints what a call costs; no test rests on a speed."""

    def test_print(self):
        w, _table = opened()
        seq = w.append(1, "rid")
        peers = [("nixl_agent", "decode-0")]
        calls = {
            "beat": w.beat,
            "post": lambda: w.post(seq, 1),
            "done": lambda: w.done(seq, 1, True),
            "serve + serve_end": lambda: (w.serve(seq), w.serve_end()),
            "append + remove": lambda: w.remove(w.append(2, "rid", peers=peers), "success"),
        }
        for name, call in calls.items():
            best = float("inf")
            for _ in range(10):
                start = time.thread_time_ns()
                for _ in range(2000):
                    call()
                best = min(best, (time.thread_time_ns() - start) / 2000)
            print(f"{name}: {best:.0f} ns", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
