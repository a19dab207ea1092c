"""Chunks of held rooms in the real transfer threads of SGLang's NIXL manager: none is begun, and
none overtakes."""

import threading
import time
import types
import unittest
from unittest import mock

from held_table import HELD, OPEN
from inflightd_hook.sglang import attach, gate
from sglang_failing import Failing, each_version
from sglang_parts import KVPoll


class Held(Failing):
    @each_version
    def test_a_thread_sets_a_held_room_aside_and_goes_on_with_others(self, version):
        self.rank(version)
        (_, held), (_, other) = self.room(8), self.room(10)
        self.agent.hold(held)
        self.send(8, 2, last=False)
        self.send(10, 3)
        self.until(lambda: self.manager.request_status[10] == KVPoll.Success)
        self.assertEqual(self.aside_pages(), [(8, 2)])
        self.assertEqual(self.counts(held), [0, 0, 0, 0, 0])
        self.assertEqual(self.counts(other), [2, 3000, 2, 3000, 0])
        self.assertEqual(self.agent.command(held)[:2], (HELD, 0))
        self.agent.release(held)
        self.poll()
        self.until(lambda: self.counts(held) == [1, 2000, 1, 2000, 0])
        self.assertEqual(self.aside_pages(), [])

    def test_what_comes_later_of_a_room_waits_behind_it(self):
        self.rank()
        _, seq = self.room(8, pages=6)
        self.agent.hold(seq)
        self.send(8, 1, last=False)
        self.send(8, 2, last=False)
        self.until(lambda: self.aside_pages() == [(8, 1), (8, 2)])
        # The hold has ended, and nobody has woken the thread: the last chunk does.
        self.agent.release(seq)
        self.send(8, 3)
        self.until(lambda: self.manager.request_status[8] == KVPoll.Success)
        self.assertEqual(self.manager.kv, [("decode-8", pages) for pages in (1, 2, 3)])
        self.assertEqual(self.counts(seq), [4, 6000, 4, 6000, 0])

    def test_a_thread_is_woken_by_the_poll_that_ends_the_hold(self):
        self.rank()
        _, seq = self.room(8)
        self.agent.hold(seq, ahead_ms=1)
        self.send(8, 4)
        self.until(self.aside_pages)
        began = time.monotonic()
        self.polls_until(lambda: self.manager.kv)
        self.assertGreater(time.monotonic() - began, 0.08)

    def test_a_hold_of_an_agent_that_died_with_it_ends_too(self):
        self.rank()
        _, seq = self.room(8)
        self.poll()
        self.agent.hold(seq, ahead_ms=1, dies=True)
        self.send(8, 4)
        self.until(self.aside_pages)
        self.polls_until(lambda: self.manager.kv)

    def test_a_thread_is_woken_once_and_the_engine_does_not_see_it(self):
        self.rank(running=False)
        _, seq = self.room(8)
        queue = self.manager.transfer_queues[0]
        self.agent.hold(seq)
        self.send(8, 2)
        queue.put(types.SimpleNamespace(room=99))
        self.assertEqual(queue.get().room, 99)
        self.assertEqual(self.aside_pages(), [(8, 2)])
        self.poll()
        self.assertEqual(list(queue._buf), [], "nothing to wake for")
        self.agent.release(seq)
        for _ in range(3):
            self.poll()
        self.assertEqual(list(queue._buf), [gate.WAKE])
        queue.put(types.SimpleNamespace(room=98))
        self.assertEqual([queue.get().room, queue.get().room], [8, 98])
        self.assertEqual((list(queue._buf), self.aside_pages()), ([], []))
        # Once more: what was on its way has come.
        self.agent.hold(seq)
        self.send(8, 1)
        queue.put(types.SimpleNamespace(room=97))
        self.assertEqual(queue.get().room, 97)
        self.agent.release(seq)
        self.poll()
        self.assertEqual(list(queue._buf), [gate.WAKE])

    def test_a_room_that_leaves_gives_its_chunks_back(self):
        self.rank()
        req, seq = self.room(8)
        self.agent.hold(seq)
        self.send(8, 2, last=False)
        self.until(self.aside_pages)
        req.disagg_kv_sender.conclude_state = KVPoll.Failed
        self.assertEqual(self.poll(), [req])
        # The engine has cleared the room and skips it.
        self.until(lambda: not self.aside_pages())
        self.assertEqual(self.manager.kv, [])

    @each_version
    def test_a_chunk_goes_back_after_a_fail_only_once_its_room_has_left(self, version):
        self.rank(version)
        (req, seq), _ = self.room(8), self.room(10)
        self.agent.hold(seq)
        self.send(8, 4)
        self.until(self.aside_pages)
        self.agent.commit(seq)
        update = self.manager.update_status

        def late(room, status):
            # The fail was taken, and the thread looks before the engine has heard of it.
            if (room, status) == (8, KVPoll.Failed):
                self.send(10, 1)
                self.until(lambda: self.manager.request_status[10] == KVPoll.Success)
                self.assertEqual(self.aside_pages(), [(8, 4)])
            update(room, status)

        with mock.patch.object(self.manager, "update_status", late):
            self.assertIn(req, self.poll())
        self.until(lambda: not self.aside_pages())
        self.assertEqual(self.manager.kv, [("decode-10", 1)])
        self.assertNotIn(8, self.manager._staging_outstanding)
        self.assertEqual(attach.faults.count, self.faults)


class Early(Failing):
    """Work for rooms that are not in the queue yet."""

    def appending(self, meanwhile):
        """The next room's append, with what happens before the hook knows its sequence."""
        append = self.scheduler_worker().append

        def slow(*args, **kwargs):
            seq = append(*args, **kwargs)
            meanwhile(seq)
            return seq

        return mock.patch.object(self.scheduler_worker(), "append", slow, create=True)

    def scheduler_worker(self):
        return self.stays()._worker

    def test_a_chunk_of_a_room_that_is_just_being_appended_is_set_aside(self):
        self.rank()
        self.room(6)
        (thread,) = self.threads

        def meanwhile(seq):
            self.send(8, 2, last=False)
            self.until(self.aside_pages)
            self.agent.hold(seq)
            time.sleep(0.05)
            self.assertIsNone(self.early(thread))

        with self.appending(meanwhile):
            _, seq = self.room(8)
        time.sleep(0.05)
        self.assertEqual((self.manager.kv, self.aside_pages()), ([], [(8, 2)]))
        self.agent.release(seq)
        self.poll()
        self.until(lambda: self.counts(seq) == [1, 2000, 1, 2000, 0])

    def test_also_where_the_append_ends_while_the_thread_looks(self):
        self.rank(running=False)
        self.room(6)
        seq, stays = self.room(8)[1], self.stays()

        class Ending(dict):
            """Not there yet when it is asked for, and there a moment later."""

            def get(self, room, default=None):
                found = super().get(room, default)
                if stays.entering == room:
                    self[room], stays.entering = seq, None
                return found

        del stays.seqs[8]
        stays.seqs = Ending(stays.seqs)
        self.send(8, 2, last=False)
        stays.entering = 8
        self.agent.hold(seq)
        self.manager.transfer_queues[0].put(types.SimpleNamespace(room=99))
        self.assertEqual(self.manager.transfer_queues[0].get().room, 99)
        self.assertEqual(self.aside_pages(), [(8, 2)])

    def test_and_goes_on_with_the_entry_where_nobody_holds_it(self):
        self.rank()
        self.room(6)
        with self.appending(lambda _: (self.send(8, 2, last=False), self.until(self.aside_pages))):
            _, seq = self.room(8)
        self.until(lambda: self.counts(seq) == [1, 2000, 1, 2000, 0])

    def test_an_early_chunk_of_a_room_that_has_entered_and_is_held_is_set_aside(self):
        self.rank(running=False)
        self.room(6)
        req = self.enters(8)
        self.send(8, 2, last=False)
        self.scheduler.finish_prefill(req)
        seq, queue = self.seq_of(8), self.manager.transfer_queues[0]
        self.agent.hold(seq)
        said = []
        worker = self.scheduler_worker()
        shown = mock.patch.multiple(
            worker, create=True,
            serve_early=lambda after: said.append("early"),
            serve=lambda seq: said.append("serve"),
            serve_end=lambda: said.append("end"),
        )
        queue.put(types.SimpleNamespace(room=99))
        with shown:
            self.assertEqual(queue.get().room, 99)
        # First seen, then asked: whoever held it before it asked has seen it, or it sees the hold.
        self.assertEqual(said[said.index("early"):][:3], ["early", "serve", "end"])
        self.assertEqual(self.aside_pages(), [(8, 2)])
        self.agent.release(seq)
        self.poll()
        self.assertEqual(queue.get().room, 8)
        self.assertEqual(self.agent.command(seq)[:2], (OPEN, 1))
        self.assertIsNone(self.early(threading.current_thread()))

    def test_work_that_began_before_its_room_entered_goes_on_and_is_seen_as_that(self):
        self.rank()
        self.nixl.first = "PROC"
        _, before = self.room(6)
        (thread,), req = self.threads, self.enters(8)
        self.send(8, 2, last=False)
        self.until(lambda: self.nixl.polls > 3)
        with self.appending(self.agent.hold):
            self.scheduler.finish_prefill(req)
        seq, polls = self.seq_of(8), self.nixl.polls
        self.until(lambda: self.nixl.polls > polls + 3)
        self.assertEqual((self.early(thread), self.serving(thread)), (before, 0))
        self.assertEqual(self.agent.command(seq)[:2], (HELD, 0))
        self.assertEqual(self.counts(seq), [1, 2000, 0, 0, 0])
        self.agent.release(seq)
        self.until(lambda: (self.early(thread), self.serving(thread)) == (before, seq))
        self.nixl.states[self.manager.sent[0][1]] = "DONE"
        self.until(lambda: self.counts(seq) == [1, 2000, 1, 2000, 0])
        self.until(lambda: self.early(thread) is None)

    def test_its_end_counts_for_the_room_also_while_that_is_held(self):
        self.rank()
        self.nixl.first = "PROC"
        req = self.enters(8)
        self.send(8, 2, last=False)
        self.until(lambda: self.nixl.polls > 3)
        with self.appending(self.agent.hold):
            self.scheduler.finish_prefill(req)
        self.nixl.states[self.manager.sent[0][1]] = "DONE"
        self.until(lambda: self.counts(self.seq_of(8)) == [1, 2000, 1, 2000, 0])


class NotGated(Failing):
    def test_where_the_environment_says_no_nothing_is_stated_or_set_aside(self):
        with mock.patch.dict("os.environ", {"INFLIGHTD_HOOK_COMMANDS": "off"}):
            self.rank()
        self.assertIsNone(self.aside())
        req = self.enters(8)
        self.scheduler.finish_prefill(req)
        (seq,) = self.table.seqs()
        self.poll()
        self.assertIsNone(self.agent.stated())
        self.agent.hold(seq)
        self.send(8, 4)
        self.until(lambda: self.manager.request_status[8] == KVPoll.Success)


if __name__ == "__main__":
    unittest.main()
