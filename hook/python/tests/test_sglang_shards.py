"""The plugin around the real transfer threads of SGLang's NIXL and Mooncake managers."""

import threading
import types
import unittest
from unittest import mock

import sglang_parts as parts
from inflightd_hook.sglang import attach
from sglang_parts import KVPoll
from sglang_threads import PATIENCE, Agent, Case, Handle, manager_of, nixl
from test_hook import STALE


class Shards(Case):
    def test_a_thread_serves_what_it_took_and_its_transfers_are_told(self):
        for version in ("0.5.20", "0.5.23"):
            with self.subTest(version):
                agent = Agent()
                self.start(nixl(version, agent))
                self.scheduler.finish_prefill(self.enters(8))
                (seq,) = self.table.seqs()
                self.send(8, 4)
                self.until(lambda: len(self.manager.sent) == 2 and agent.polls > 3)
                self.assertEqual(self.counts(seq), [2, 4000, 0, 0, 0])
                self.assertIn(seq, [self.serving(thread) for thread in self.threads])
                for _, handle in self.manager.sent:
                    agent.states[handle] = "DONE"
                self.until(lambda: self.manager.request_status[8] == KVPoll.Success)
                self.assertEqual(self.counts(seq), [2, 4000, 2, 4000, 0])
                self.until(lambda: {self.serving(t) for t in self.threads} <= {0, None})

    def test_a_chunk_sent_before_the_room_enters_counts_for_it(self):
        agent = Agent()
        self.start(nixl("0.5.23", agent))
        req = self.enters(8, pages=6)
        self.send(8, 2, last=False)
        self.until(lambda: agent.polls > 3)
        agent.states[self.manager.sent[0][1]] = "DONE"
        self.until(lambda: self.manager._staging_outstanding[8] == 0)
        # The second is still under way when the room enters.
        self.send(8, 3, last=False)
        self.until(lambda: len(self.manager.sent) == 2)
        self.scheduler.finish_prefill(req)
        (seq,) = self.table.seqs()
        self.until(lambda: seq in [self.serving(thread) for thread in self.threads])
        self.until(lambda: self.counts(seq) == [2, 5000, 1, 2000, 0])
        agent.states[self.manager.sent[1][1]] = "DONE"
        self.until(lambda: self.counts(seq) == [2, 5000, 2, 5000, 0])

    def test_a_thread_is_shown_at_work_for_what_has_not_entered_yet(self):
        agent = Agent()
        self.start(nixl("0.5.23", agent))
        first, late = self.enters(6), self.enters(8)
        self.scheduler.finish_prefill(first)
        (before,) = self.table.seqs()
        self.send(8, 2, last=False)
        # What enters after the chunk was queued does not come before it.
        self.scheduler.finish_prefill(self.enters(10))
        self.until(lambda: before in [self.early(thread) for thread in self.threads])
        self.until(lambda: agent.polls > 3)
        self.scheduler.finish_prefill(late)
        seq = self.table.seqs()[-1]
        self.until(lambda: (seq, before) in [(self.serving(t), self.early(t)) for t in self.threads])
        agent.states[self.manager.sent[0][1]] = "DONE"
        self.until(lambda: {self.early(thread) for thread in self.threads} == {None})
        self.assertEqual(self.counts(seq), [1, 2000, 1, 2000, 0])

    def test_a_post_that_stands_still_shows_when_its_room_enters(self):
        agent, entered, goes = Agent(), threading.Event(), threading.Event()
        transfer = agent.transfer

        def stands(handle):
            entered.set()
            self.assertTrue(goes.wait(PATIENCE))
            return transfer(handle)

        agent.transfer = stands
        self.start(nixl("0.5.23", agent))
        req = self.enters(8)
        self.send(8, 2, last=False)
        self.assertTrue(entered.wait(PATIENCE))
        self.scheduler.finish_prefill(req)
        (seq,) = self.table.seqs()
        self.assertEqual(self.counts(seq), [1, 2000, 0, 0, 0])
        goes.set()
        self.until(lambda: self.manager.sent)
        agent.states[self.manager.sent[0][1]] = "DONE"
        self.until(lambda: self.counts(seq) == [1, 2000, 1, 2000, 0])

    def test_a_post_that_fails_is_told_as_one(self):
        agent = Agent()
        agent.first = "raise"
        self.start(nixl("0.5.23", agent))
        self.scheduler.finish_prefill(self.enters(8))
        (seq,) = self.table.seqs()
        stale = self.table.word(STALE)
        with self.assertLogs("sglang"):
            self.send(8, 4)
            self.until(lambda: self.manager.request_status[8] == KVPoll.Failed)
            self.until(lambda: self.counts(seq) == [1, 4000, 1, 0, 1])
        self.assertEqual(self.table.word(STALE), stale)
        self.assertTrue(all(thread.is_alive() for thread in self.threads))

    def test_what_waits_behind_is_not_served(self):
        agent = Agent()
        self.start(nixl("0.5.23", agent))
        for room in (8, 10):
            self.scheduler.finish_prefill(self.enters(room))
            self.send(room, 1)
        first, second = self.table.seqs()
        self.until(lambda: len(self.manager.sent) == 2)
        served = [self.serving(thread) for thread in self.threads]
        self.assertIn(first, served)
        self.assertNotIn(second, served)
        self.assertEqual(self.counts(second), [0, 0, 0, 0, 0])

    def test_transfers_of_the_scheduler_itself_are_told_as_its_polls_see_them(self):
        # As `NixlKVSender.send` and `.poll` up to 0.5.11: posted on the scheduler's thread.
        manager, agent, handle = parts.manager(), Agent(), Handle()
        manager.agent = agent
        del manager.transfer_queues

        def send(scheduler, req, last_chunk=False, end_idx=None):
            agent.transfer(handle)

        with mock.patch.object(parts._Scheduler, "send_kv_chunk", send), \
                mock.patch.object(attach.inflightd_hook, "open_worker", parts.opened):
            scheduler = parts.scheduler_class("0.5.11")(manager)
            scheduler.finish_prefill(parts.request("old", 3, manager))
        self.table = parts.table()
        (seq,) = self.table.seqs()
        self.assertEqual(self.counts(seq), [1, 0, 0, 0, 0])
        self.assertEqual(agent.check_xfer_state(handle), "PROC")
        agent.states[handle] = "DONE"
        self.assertEqual(agent.check_xfer_state(handle), "DONE")
        self.assertEqual(self.counts(seq), [1, 0, 1, 0, 0])

    def test_mooncake_calls_are_told_with_their_bytes(self):
        calls = []

        class Status(int):
            def __eq__(self, other):
                # As numpy's: something that is true or not, and no bool.
                return [int(self)] if int(self) == other else []

        class Engine:
            def batch_transfer_sync(self, session, buffers, addresses, lengths):
                calls.append(session)
                return Status(0 if session == "good:1" else -1)

            def get_session_id(self):
                return "own:2"

        manager = manager_of([], engine=Engine(), agent=None)
        self.start_nothing(manager)
        self.assertTrue(hasattr(manager.engine.batch_transfer_sync, "__wrapped__"))
        self.scheduler.finish_prefill(self.enters(8))
        (seq,) = self.table.seqs()
        manager.transfer_queues[0].put(types.SimpleNamespace(room=8, prefill_kv_indices=[1]))
        manager.transfer_queues[0].get()
        self.assertEqual(manager.engine.batch_transfer_sync("good:1", [1], [2], [30, 12]), 0)
        self.assertEqual(manager.engine.batch_transfer_sync("bad:1", [1], [2], lengths=[5]), -1)
        self.assertEqual(self.counts(seq), [2, 47, 2, 42, 1])

    def test_calls_that_are_not_seen_are_told_by_chunk(self):
        for ends, counts in ((KVPoll.Success, [1, 3000, 1, 3000, 0]),
                             (KVPoll.Failed, [1, 3000, 1, 0, 1])):
            attach._shards.clear()
            calls = mock.MagicMock()
            manager = manager_of([], engine=calls, agent=None, enable_custom_mem_pool=True)
            self.start_nothing(manager)
            self.assertIs(manager.engine, calls)
            self.scheduler.finish_prefill(self.enters(8))
            (seq,) = self.table.seqs()
            queue = manager.transfer_queues[0]
            queue.put(types.SimpleNamespace(room=8, prefill_kv_indices=[1, 2, 3]))
            queue.get()
            self.assertEqual(self.counts(seq), [1, 3000, 0, 0, 0])
            manager.request_status[8] = ends
            queue.put(None)
            self.assertIsNone(queue.get())
            self.assertEqual(self.counts(seq), counts)


if __name__ == "__main__":
    unittest.main()
