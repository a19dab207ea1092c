"""Chunks that are set aside when something ends that: none is lost, and none is sent too early."""

import collections
import random
import threading
import time
import types
import unittest
from unittest import mock

from held_table import HELD
from inflightd_hook.sglang import attach, gate
from sglang_failing import Failing
from sglang_threads import PATIENCE


class NothingLost(Failing):
    """Whatever ends the gate, what was set aside goes back to the engine, in order."""

    def setUp(self):
        super().setUp()
        patched = mock.patch.object(gate, "SETTLED_S", 0.1)
        patched.start()
        self.addCleanup(patched.stop)

    def with_two_aside(self, last=True):
        self.rank()
        _, seq = self.room(8)
        self.poll()
        self.assertEqual(self.agent.stated(), 1)
        self.agent.hold(seq)
        self.send(8, 1, last=False)
        self.send(8, 3, last)
        self.until(lambda: self.aside_pages() == [(8, 1), (8, 3)])

    def goes_back(self):
        self.until(lambda: len(self.manager.kv) == 2)
        self.assertEqual(self.manager.kv, [("decode-8", 1), ("decode-8", 3)])
        self.assertEqual(self.agent.stated(), 0)

    def goes_back_late(self):
        """Not while another rank might fail it."""
        ends = time.monotonic() + 0.1
        while time.monotonic() < ends:
            self.assertEqual(self.manager.kv, [])
            self.poll()
        self.polls_until(lambda: len(self.manager.kv) == 2)
        self.goes_back()

    def test_a_change_of_roles(self):
        self.with_two_aside()
        attach.take_back()
        self.goes_back()

    def test_the_end_of_the_table(self):
        self.with_two_aside()
        with mock.patch.object(self.stays(), "_leave", side_effect=KeyError("gone")), \
                self.assertLogs("inflightd_hook"):
            self.scheduler.disagg_prefill_inflight_queue = []
            self.poll()
        self.goes_back_late()
        self.assertFalse(self.stays()._worker.is_on)

    def test_a_fault_of_the_hook_wherever_it_is(self):
        places = ((self.shards, "queued"), (self.shards, "back"), (self.shards, "taken"),
                  (self.shards, "begin"), (self.aside, "due"))
        for holder, name in places:
            with self.subTest(name):
                self.with_two_aside()
                holder, faults = holder(), attach.faults.count
                broken = mock.patch.object(type(holder), name, side_effect=KeyError("gone"))
                with broken, self.assertLogs("inflightd_hook"):
                    self.manager.transfer_queues[0].put(types.SimpleNamespace(room=99))
                    if name == "due":
                        # It is tried for what is not held any more, which goes back at once.
                        self.agent.release(self.seq_of(8))
                        self.manager.transfer_queues[0].put(types.SimpleNamespace(room=99))
                    self.until(lambda: attach.faults.count > faults)
                    self.goes_back() if name == "due" else self.goes_back_late()
                attach.take_back()
            # What ended by a fault has ended for good: the next one has its own.
            self.patched_anew()

    def shards(self):
        return self.aside().shards

    def patched_anew(self):
        fast_queue = type(self.manager.transfer_queues[0])
        fast_queue.get = attach._served(fast_queue.get.__wrapped__)
        fast_queue.put = attach._queued(fast_queue.put.__wrapped__)

    def test_a_fault_elsewhere_in_the_hook(self):
        self.with_two_aside()
        with self.assertLogs("inflightd_hook"):
            attach.faults.take("something", KeyError("gone"))
        self.goes_back_late()

    def test_after_a_fault_a_release_gives_it_back_at_once(self):
        with mock.patch.object(gate, "SETTLED_S", 60):
            self.with_two_aside()
            with self.assertLogs("inflightd_hook"):
                attach.faults.take("something", KeyError("gone"))
            self.agent.release(self.seq_of(8))
            self.poll()
            self.goes_back()

    def test_after_a_fault_what_is_held_is_not_begun_either(self):
        self.with_two_aside()
        with self.assertLogs("inflightd_hook"):
            attach.faults.take("something", KeyError("gone"))
        _, seq = self.room(10)
        self.agent.hold(seq)
        self.send(10, 1)
        self.until(lambda: (10, 1) in self.aside_pages())

    def test_what_is_held_goes_back_after_a_whole_poll_from_when_nobody_can_fail_it(self):
        self.with_two_aside()
        with self.assertLogs("inflightd_hook"):
            attach.faults.take("something", KeyError("gone"))
        time.sleep(0.11)
        # It may have begun before.
        self.poll()
        time.sleep(0.05)
        self.assertEqual(self.manager.kv, [])
        self.poll()
        self.goes_back()

    def test_a_fault_in_the_waking_keeps_nothing_back(self):
        self.with_two_aside()
        gate_of = type(self.aside().gate)
        broken = mock.patch.object(gate_of, "wake", side_effect=[KeyError("gone"), None, None])
        with broken, self.assertLogs("inflightd_hook"):
            self.poll()
        self.manager.transfer_queues[0].put(types.SimpleNamespace(room=99))
        self.goes_back()

    def test_what_comes_after_a_fault_in_the_taking_is_not_begun_either(self):
        self.with_two_aside(last=False)
        broken = mock.patch.object(type(self.shards()), "taken", side_effect=KeyError("gone"))
        with broken, self.assertLogs("inflightd_hook"):
            self.manager.transfer_queues[0].put(types.SimpleNamespace(room=99))
            self.until(lambda: attach.faults.count > self.faults)
            _, seq = self.room(10)
            self.agent.hold(seq)
            self.send(10, 1)
            self.until(lambda: (10, 1) in self.aside_pages())
            # Nobody has woken the thread: what comes later of a room still waits behind it.
            self.agent.release(self.seq_of(8))
            self.send(8, 2)
            self.until(lambda: len(self.manager.kv) == 3)
            self.assertEqual(self.manager.kv, [("decode-8", pages) for pages in (1, 3, 2)])
            self.polls_until(lambda: ("decode-10", 1) in self.manager.kv)
        self.patched_anew()

    def test_an_engine_that_stops_its_thread_gets_everything_before(self):
        self.rank(running=False)
        _, seq = self.room(8)
        queue = self.manager.transfer_queues[0]
        self.agent.hold(seq)
        self.send(8, 1, last=False)
        self.send(8, 3)
        queue.put(None)
        items = [queue.get() for _ in range(3)]
        self.assertEqual([item and len(item.prefill_kv_indices) for item in items], [1, 3, None])
        self.assertEqual((list(queue._buf), self.aside_pages()), ([], []))

    def test_holds_and_releases_at_random(self):
        self.rank(queues=2)
        dice, sent = random.Random(4), collections.defaultdict(list)
        rooms = {8 + number: self.room(8 + number, pages=64)[1] for number in range(12)}
        stop = threading.Event()

        def chunks():
            for _ in range(40):
                for room in dice.sample(sorted(rooms), 6):
                    pages = dice.randint(1, 60)
                    sent[f"decode-{room}"].append(pages)
                    self.send(room, pages, last=False)
                time.sleep(0.001)
            stop.set()

        sender = threading.Thread(target=chunks)
        sender.start()
        while not stop.is_set():
            # Where nobody works, no thread can come in between: a test has no compare-and-swap.
            seq = rooms[dice.choice(sorted(rooms))]
            state, active, _ = self.agent.command(seq)
            if state == HELD:
                self.agent.release(seq)
            elif active == 0:
                self.agent.hold(seq, ahead_ms=60_000)
            self.poll()
        sender.join(PATIENCE)
        for seq in rooms.values():
            if self.agent.command(seq)[0] == HELD:
                self.agent.release(seq)
        whole = sum(map(len, sent.values()))
        self.polls_until(lambda: len(self.manager.kv) == whole)
        for name, pages in sent.items():
            self.assertEqual([kept for to, kept in self.manager.kv if to == name], pages)
        self.assertEqual(attach.faults.count, self.faults)


if __name__ == "__main__":
    unittest.main()
