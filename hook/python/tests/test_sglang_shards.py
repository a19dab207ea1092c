"""The plugin around the real transfer threads of SGLang's NIXL and Mooncake managers."""

import collections
import logging
import threading
import time
import types
import unittest
from unittest import mock

import sglang_parts as parts
import sglang_wheel
from inflightd_hook.sglang import attach
from sglang_parts import KVPoll
from test_hook import DONE_BYTES, DONES, EARLY, FAILURES, HEADER_WORDS, POSTED_BYTES, POSTS
from test_hook import STALE, THREAD_WORDS, THREADS

PATIENCE = 30.0
"""Longest wait for a thread in seconds."""


class Agent:
    """A NIXL agent whose transfers end when they are let."""

    def __init__(self):
        self.name = "prefill-agent"
        self.states, self.first = {}, "PROC"
        self.polls = 0

    def transfer(self, handle):
        state = self.states.setdefault(handle, self.first)
        if state == "raise":
            raise RuntimeError("NIXL_ERR_REMOTE_DISCONNECT")
        return state

    def check_xfer_state(self, handle):
        self.polls += 1
        return self.states[handle]


class Handle:
    """``nixl_xfer_handle`` of NIXL 1.5.1 has slots and an identity."""

    __slots__ = ()


def nixl(version, agent):
    """A ``NixlKVManager`` with its real worker, whose sends post a handle each."""
    names = ["transfer_worker", "_await_handles", "_post_xfer", "add_transfer_request"]
    given = {
        "KVPoll": KVPoll,
        "time": time,
        "logger": logging.getLogger("sglang"),
        "NIXL_ERR_SETTLE_TIMEOUT_S": 0.05,
        "NIXL_ERR_SETTLE_POLL_S": 0.01,
        "_NIXL_TRANSPORT_ERRORS": (OSError,),
        "_NixlPostError": RuntimeError,
        "DisaggregationMode": types.SimpleNamespace(PREFILL="prefill"),
        "List": list,
        "Any": object,
        "Dict": dict,
        "TransferKVChunk": lambda **fields: types.SimpleNamespace(staging_counted=False, **fields),
    }
    found = [name for name in names if name != "_post_xfer" or version > "0.5.20"]
    functions = sglang_wheel.lift(
        version, "disaggregation.nixl.conn", *[f"NixlKVManager.{name}" for name in found], **given
    )
    return _manager(functions, agent=agent, queues=2)


def _manager(functions, queues=1, **fields):
    class Manager(parts_of_a_manager()):
        pass

    for function in functions:
        setattr(Manager, function.__name__, function)
    made = Manager()
    vars(made).update(vars(parts.manager()))
    vars(made).update(fields)
    made.transfer_queues = [fast_queue()() for _ in range(queues)]
    return made


def fast_queue():
    """The real ``FastQueue`` of 0.5.23, patched as the plugin patches it."""
    return _FAST_QUEUE


(_FAST_QUEUE,) = sglang_wheel.lift(
    "0.5.23", "disaggregation.common.utils", "FastQueue",
    deque=collections.deque, threading=threading,
)
_FAST_QUEUE.get = attach._served(_FAST_QUEUE.get)
_FAST_QUEUE.put = attach._queued(_FAST_QUEUE.put)


def parts_of_a_manager():
    """What the workers ask of the rest of their manager, as ``CommonKVManager`` of 0.5.23."""

    class Rest:
        disaggregation_mode = "prefill"
        enable_staging = enable_deferred_decode_kv_release = enable_trace = False
        is_mla_backend = True
        is_hybrid_mla_backend = False
        failed = ()

        def __init__(self):
            self.request_status, self.sent = {}, []
            self._staging_outstanding = collections.defaultdict(int)
            self.decode_kv_args_table = collections.defaultdict(mock.MagicMock)
            self.req_to_decode_prefix_len = {}
            self.session_lock = threading.Lock()
            self.failed_sessions, self.state_layout_rejections = set(), {}
            self.failed_session_probes = {}
            self.session_failures = collections.defaultdict(int)

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return mock.MagicMock(name=name)

        def check_status(self, room):
            return self.request_status.get(room, KVPoll.WaitingForInput)

        def update_status(self, room, status):
            self.request_status[room] = status

        def conclude_transfer(self, *, bootstrap_room, status, **_):
            self.update_status(bootstrap_room, status)

        def conclude_failure(self, *, bootstrap_room, **_):
            self.update_status(bootstrap_room, KVPoll.Failed)

        def send_kvcache(self, *args, **kwargs):
            return self._send("kv")

        def send_aux(self, *args, **kwargs):
            return self._send("aux")

        def _send(self, kind):
            handle = Handle()
            self.sent.append((kind, handle))
            if self.agent.transfer(handle) == "ERR":
                raise RuntimeError("post failed")
            return handle

    return Rest


class Shards(unittest.TestCase):
    def setUp(self):
        attach._shards.clear()

    def start(self, manager):
        with mock.patch.object(attach.inflightd_hook, "open_worker", parts.opened):
            self.scheduler = parts.scheduler_class("0.5.23")(manager)
        self.table, self.manager = parts.table(), manager
        self.threads = []
        for queue in manager.transfer_queues:
            thread = threading.Thread(target=manager.transfer_worker, args=(queue,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def enters(self, room, pages=4):
        info = parts.info(f"decode-{room}")
        vars(info).update(room=room, required_dst_info_num=1, dst_kv_indices=range(64),
                          decode_prefix_len=0, dst_port=7000, dst_aux_index=0)
        self.manager.transfer_infos[room] = {info.agent_name: info}
        self.manager.decode_kv_args_table[info.agent_name] = types.SimpleNamespace(
            requires_dcp_relayout=False, kv_xfer_segments=None, dst_homogeneous_mem_kind="VRAM",
            decode_tp_size=2, decode_tp_rank=0, dst_kv_ptrs=[], dst_aux_ptrs=[], gpu_id=0)
        self.manager.request_status[room] = KVPoll.WaitingForInput
        return parts.request(f"rid-{room}", room, self.manager, pages=pages)

    def send(self, room, pages, last=True):
        arguments = (room, list(range(pages)), slice(0, pages), last)
        if "chunk_id" in self.manager.add_transfer_request.__code__.co_varnames:
            arguments += (0,)
        self.manager.add_transfer_request(*arguments, aux_index=1 if last else None)

    def until(self, holds):
        end = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), end, "nothing came of it")
            time.sleep(0.002)

    def counts(self, seq):
        return [self.table.count(seq, at)
                for at in (POSTS, POSTED_BYTES, DONES, DONE_BYTES, FAILURES)]

    def serving(self, thread):
        slot = HEADER_WORDS + thread.native_id % THREADS * THREAD_WORDS
        return self.table.word(slot + 1) if self.table.word(slot) == thread.native_id else None

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

    def early(self, thread):
        """What the thread's early work comes after; None where it is at none."""
        slot = HEADER_WORDS + thread.native_id % THREADS * THREAD_WORDS
        word = self.table.word(slot + EARLY)
        return word - 1 if self.table.word(slot) == thread.native_id and word else None

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

        manager = _manager([], engine=Engine(), agent=None)
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
            manager = _manager([], engine=calls, agent=None, enable_custom_mem_pool=True)
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

    def start_nothing(self, manager):
        threads, manager.transfer_queues = manager.transfer_queues, []
        self.start(manager)
        manager.transfer_queues = threads


if __name__ == "__main__":
    unittest.main()
