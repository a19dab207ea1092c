"""The plugin around the real poll of SGLang's inflight queue, of several versions."""

import logging
import random
import statistics
import sys
import time
import types
import unittest
from unittest import mock

import sglang_parts as parts
import sglang_wheel
from inflightd_hook.sglang import attach, engine, queue, vitals
from sglang_parts import KVPoll
from test_hook import BEATS, EXPECTED, GAUGES, OUTCOME, PEERS, PHASE, RID, STATE, TRACE, TRACEPARENT

OUTCOMES = {"success": 1, "failed": 2, "aborted": 3, "requeued": 4}
PARKED, PEERS_READY, FAILED, EXEMPT, DONE_HERE = 1, 2, 4, 5, 6


class Pair:
    """A scheduler that was just built, and its table."""

    def __init__(self, version, manager=None, opened=parts.opened):
        attach._shards.clear()
        self.manager = manager or parts.manager()
        with mock.patch.object(attach.inflightd_hook, "open_worker", opened):
            self.scheduler = parts.scheduler_class(version)(self.manager)
        self.table = parts.table()

    def enters(self, rid, room, **options):
        self.manager.transfer_infos[room] = {"d": parts.info(f"decode-{room}")}
        parked = options.pop("parked", False)
        req = parts.request(rid, room, self.manager, **options)
        req.pending_bootstrap = parked
        self.scheduler.finish_prefill(req)
        return req

    def poll(self):
        return self.scheduler.process_disagg_prefill_inflight_queue()

    def seqs(self):
        return self.table.seqs()


def each_version(test):
    def run(self):
        for version in sglang_wheel.RUN:
            with self.subTest(version):
                test(self, version)

    return run


class Queue(unittest.TestCase):
    @each_version
    def test_a_request_is_told_as_it_enters_and_as_it_leaves(self, version):
        pair = Pair(version)
        req = pair.enters("rid-1", 77)
        (seq,) = pair.seqs()
        self.assertEqual(pair.table.text(seq, RID), "rid-1")
        self.assertEqual(pair.table.entry(seq, EXPECTED), 4 * 1000)
        self.assertEqual((pair.table.entry(seq, PEERS), pair.table.entry(seq, PEERS + 1)), (1, 1))
        self.assertEqual(pair.table.text(seq, PEERS + 2), "decode-77")
        beats = pair.table.word(BEATS)
        self.assertEqual(pair.poll(), [])
        self.assertEqual(pair.table.word(BEATS), beats + 1)
        self.assertEqual(pair.table.entry(seq, STATE), seq << 2 | 1)
        req.disagg_kv_sender.state = KVPoll.Success
        self.assertEqual(pair.poll(), [req])
        self.assertEqual(pair.table.entry(seq, STATE), seq << 2 | 3)
        self.assertEqual(pair.table.entry(seq, OUTCOME), OUTCOMES["success"])

    @each_version
    def test_a_trace_context_that_is_none_does_not_cost_the_request(self, version):
        pair = Pair(version)
        for room, (stated, kept) in enumerate([(TRACEPARENT, TRACEPARENT), ("garbage", ""), (7, "")]):
            req = parts.request("traced", room, pair.manager)
            context = {"traceparent": stated}
            trace = types.SimpleNamespace(root_span_context=context)
            req.time_stats = types.SimpleNamespace(trace_ctx=trace)
            self.assertEqual(engine.traceparent(req), kept or None)
            pair.scheduler.finish_prefill(req)
            self.assertEqual(pair.table.text(pair.seqs()[-1], TRACE), kept)
            self.assertEqual(len(pair.seqs()), room + 1)

    @each_version
    def test_each_end_has_its_outcome(self, version):
        pair = Pair(version)
        reasons = {"failed": "NIXL_ERR_REMOTE_DISCONNECT", "aborted": "Aborted by AbortReq."}
        for room, (outcome, reason) in enumerate(reasons.items()):
            req = pair.enters(outcome, room)
            (seq,) = pair.seqs()
            req.disagg_kv_sender.state, req.disagg_kv_sender.reason = KVPoll.Failed, reason
            self.assertEqual(pair.poll(), [req])
            self.assertEqual(pair.table.entry(seq, OUTCOME), OUTCOMES[outcome])

    @each_version
    def test_the_same_room_twice_is_two_stays(self, version):
        pair = Pair(version)
        for _ in range(2):
            req = pair.enters("again", 5)
            (seq,) = pair.seqs()
            req.disagg_kv_sender.state = KVPoll.Success
            pair.poll()
            self.assertEqual(pair.table.entry(seq, OUTCOME), OUTCOMES["success"])

    @each_version
    def test_warm_ups_and_dummy_ranks_are_exempt(self, version):
        pair = Pair(version)
        pair.enters("fake", 1, sender=parts.FakeKVSender)
        pair.enters("host", 2, host="2.2.2.2")
        dummy = {"d": parts.info("decode", dummy=True)}
        pair.manager.transfer_infos[3] = dummy
        req = parts.request("dummy", 3, pair.manager)
        pair.scheduler.finish_prefill(req)
        pair.enters("real", 4)
        phases = [pair.table.count(seq, PHASE) for seq in pair.seqs()]
        self.assertEqual(phases, [EXEMPT, EXEMPT, EXEMPT, 0])
        pair = Pair(version, parts.manager(is_dummy_cp_rank=True))
        pair.enters("rank", 1)
        self.assertEqual([pair.table.count(seq, PHASE) for seq in pair.seqs()], [EXEMPT])

    def test_a_parked_request_is_told_as_parked_until_it_is_sent(self):
        for version in ("0.5.20", "0.5.23"):
            pair = Pair(version)
            req = pair.enters("parked", 9, parked=True)
            req.disagg_kv_sender.state = KVPoll.Bootstrapping
            pair.scheduler.req_to_token_pool.available_size.return_value = 1
            pair.poll()
            (seq,) = pair.seqs()
            self.assertEqual(pair.table.count(seq, PHASE), PARKED)
            req.disagg_kv_sender.state = KVPoll.WaitingForInput
            pair.poll()
            self.assertEqual(pair.scheduler.sent, [("parked", True)])
            self.assertEqual(pair.table.count(seq, PHASE), PEERS_READY)

    @each_version
    def test_a_parked_request_that_goes_back_is_requeued(self, version):
        pair = Pair(version)
        req = pair.enters("back", 9, parked=True)
        req.disagg_kv_sender.state = KVPoll.WaitingForInput
        # As `optimistic_release_and_requeue` of 0.5.23: it is pending again, and not finished.
        with mock.patch.object(pair.scheduler, "finalize", lambda _: True):
            pair.poll()
        (seq,) = pair.seqs()
        req.pending_bootstrap = True
        pair.scheduler.disagg_prefill_inflight_queue = []
        pair.poll()
        self.assertEqual(pair.table.entry(seq, OUTCOME), OUTCOMES["requeued"])


    def polls_until(self, pair, holds):
        end = time.monotonic() + 30
        while not holds():
            self.assertLess(time.monotonic(), end, "nothing came of it")
            pair.poll()
            time.sleep(0.01)

    @each_version
    def test_a_rank_that_is_done_before_the_others_is_told_as_that(self, version):
        pair = Pair(version)
        done, failed = pair.enters("done", 1), pair.enters("failed", 2)
        # What `poll` gives here is what all ranks agreed on; the sender knows its own end.
        done.disagg_kv_sender.conclude_state = KVPoll.Success
        failed.disagg_kv_sender.conclude_state = KVPoll.Failed
        seqs = pair.seqs()
        self.polls_until(pair, lambda: pair.table.count(seqs[1], PHASE))
        self.assertEqual([pair.table.count(seq, PHASE) for seq in seqs], [DONE_HERE, FAILED])

    def test_without_other_ranks_nobody_is_compared(self):
        manager = parts.manager()
        manager.attn_tp_size, manager.attn_tp_rank = 1, 0
        pair = Pair("0.5.23", manager)
        pair.enters("alone", 1).disagg_kv_sender.conclude_state = KVPoll.Success
        (seq,) = pair.seqs()
        faults = GAUGES + 8
        before = pair.table.word(faults)
        attach.faults.count += 1
        self.polls_until(pair, lambda: pair.table.word(faults) != before)
        self.assertEqual(pair.table.count(seq, PHASE), 0)

    @each_version
    def test_memory_and_slots_are_said(self, version):
        pair = Pair(version)
        free = types.SimpleNamespace(available_size=lambda: 100, size=16)
        pair.scheduler.token_to_kv_pool_allocator = mock.MagicMock(available_size=lambda: 100)
        pair.scheduler.tree_cache = mock.MagicMock(evictable_size=lambda: 11)
        pair.scheduler.req_to_metadata_buffer_idx_allocator = free
        pair.scheduler.max_total_num_tokens = 4096
        said = lambda: [pair.table.word(GAUGES + code) - 1 for code in (1, 2, 3, 4)]  # noqa: E731
        self.polls_until(pair, lambda: said() == [111, 4096, 100, 16])


class Ranks(unittest.TestCase):
    """Ranks reduce the states of their requests by place in the list: one that is longer or in
    another order on one rank gives requests the states of others, or hangs all of them."""

    @each_version
    def test_a_rank_s_list_has_the_length_and_order_that_it_has_without_the_plugin(self, version):
        with mock.patch.object(vitals, "LOOK_S", 0.0):
            faults, pair = attach.faults.count, Pair(version)
            told, hooked = set(), []
            for lists in self.lists(version, pair):
                hooked.append(lists)
                told.update(pair.table.count(seq, PHASE) for seq in pair.seqs())
                self.assertEqual(len(pair.seqs()), len(lists[-1]))
        self.assertIn(DONE_HERE, told)
        self.assertEqual(attach.faults.count, faults)
        off = Pair(version, opened=lambda *_, **__: types.SimpleNamespace(is_on=False))
        self.assertNotIn("process_disagg_prefill_inflight_queue", vars(off.scheduler))
        self.assertEqual(hooked, list(self.lists(version, off)))

    def lists(self, version, pair):
        """For each of many polls: the requests whose states are reduced, and the queue after it."""
        dice, reduced = random.Random(version), []

        def reduce(pollers, *_):
            reduced.append([poller.rid for poller in pollers])
            # What the other ranks say keeps some of them.
            return [min(poller.poll(), poller.others) for poller in pollers]

        poll = getattr(type(pair.scheduler), "process_disagg_prefill_inflight_queue")
        scope = {"poll_and_all_reduce_attn_cp_tp_group": reduce}
        with mock.patch.dict(poll.__globals__, scope):
            for number in range(300):
                self.change(dice, pair, number)
                reduced.clear()
                pair.poll()
                queue = pair.scheduler.disagg_prefill_inflight_queue
                yield [*reduced, [req.rid for req in queue]]

    def change(self, dice, pair, number):
        """A request enters, this rank ends its part of another, the other ranks of a third."""
        if dice.random() < 0.6:
            sender = pair.enters(f"rid-{number}", number).disagg_kv_sender
            sender.rid, sender.others = f"rid-{number}", KVPoll.Transferring
        queue = pair.scheduler.disagg_prefill_inflight_queue
        senders = [req.disagg_kv_sender for req in queue]
        for sender in dice.sample(senders, min(2, len(senders))):
            if dice.random() < 0.5:
                sender.others = KVPoll.Success
            elif sender.conclude_state is None:
                sender.conclude_state = dice.choice([KVPoll.Success, KVPoll.Success, KVPoll.Failed])
                sender.state, sender.reason = sender.conclude_state, "KVTransferError"


class Switch(unittest.TestCase):
    def test_a_change_of_roles_is_another_worker_and_hooks_nothing_twice(self):
        pair = Pair("0.5.23")
        pair.enters("before", 1)
        scheduler, old = pair.scheduler, pair.table
        self.assertTrue(hasattr(scheduler.process_disagg_prefill_inflight_queue, "__wrapped__"))

        def rebuilt(self):
            self.disaggregation_mode = types.SimpleNamespace(value="decode")
            self.disagg_decode_prealloc_queue = mock.MagicMock(queue=[], kv_manager=pair.manager)
            self.disagg_decode_transfer_queue = mock.MagicMock(queue=[])
            self.process_decode_queue = lambda: "passed"

        with mock.patch.object(attach.inflightd_hook, "open_worker", parts.opened), \
                mock.patch.object(parts.Rebuilt, "init", rebuilt):
            scheduler.init_disaggregation()
        self.assertEqual(old.seqs(), [])
        own = vars(scheduler)
        self.assertNotIn("process_disagg_prefill_inflight_queue", own)
        self.assertEqual(scheduler.process_decode_queue(), "passed")
        self.assertFalse(hasattr(scheduler.process_decode_queue.__wrapped__, "__wrapped__"))
        self.assertIsNot(parts.table(), old)
        self.assertFalse(hasattr(scheduler.init_disaggregation.__wrapped__, "__wrapped__"))


class Missing(unittest.TestCase):
    def test_what_an_engine_lacks_is_flagged_and_said_in_one_line(self):
        with self.assertLogs("inflightd_hook", logging.INFO) as logs:
            pair = Pair("0.5.23")
        self.assertEqual(len(logs.output), 1)
        old = parts.manager()
        del old.transfer_queues, old.attn_tp_rank
        with self.assertLogs("inflightd_hook", logging.INFO) as logs:
            pair = Pair("0.5.11", old)
        for words in ("which thread serves which room", "dummy ranks", "ranks", "transfer calls"):
            self.assertIn(words, logs.output[0])
        bits = pair.table.word(GAUGES + 9) - 1
        self.assertEqual(bits & 0b11011, 0b11011)
        self.assertEqual(bits & 32, 0)


class Contained(unittest.TestCase):
    def test_what_the_engine_raises_passes_through(self):
        pair = Pair("0.5.23")
        req = pair.enters("bad", 1)
        req.disagg_kv_sender.state = 17
        with self.assertRaisesRegex(RuntimeError, "Unexpected poll state 17"):
            pair.poll()

    def test_a_fault_of_the_hook_is_logged_once_and_the_engine_goes_on(self):
        pair = Pair("0.5.23")
        pair.enters("first", 1)
        broken = mock.patch.object(attach.engine, "peers", side_effect=KeyError("gone"))
        faults = attach.faults.count
        with broken, self.assertLogs("inflightd_hook", logging.WARNING) as logs:
            second = pair.enters("second", 2)
            pair.enters("third", 3)
            second.disagg_kv_sender.state = KVPoll.Success
            self.assertEqual(pair.poll(), [second])
            pair.poll()
        # Once for the entry, once for the comparison; then no room is shown that nobody follows.
        self.assertEqual((len(logs.records), attach.faults.count), (2, faults + 2))
        self.assertIn("the entry of a request ended by a fault of the hook", logs.output[0])
        self.assertEqual(pair.seqs(), [])
        self.assertEqual([rid for rid, _ in pair.scheduler.sent], ["first", "second", "third"])

    def test_an_engine_that_lacks_everything_is_left_alone(self):
        scheduler = types.SimpleNamespace(disaggregation_mode=types.SimpleNamespace(value="null"))
        before = dict(vars(scheduler))
        attach.attach(scheduler)
        self.assertEqual(vars(scheduler), before)


class Beats(unittest.TestCase):
    def test_a_busy_loop_beats_as_often_as_anybody_asks(self):
        worker = mock.Mock()
        beat = queue.Beat(worker)
        for now in (5.0, 5.001, 5.0049, 5.006, 5.1):
            beat.tell(now)
        self.assertEqual(worker.beat.call_count, 3)


class Cost(unittest.TestCase):
    """Prints what the hook adds to a poll, paired with the bare poll; no test rests on a speed."""

    def test_print(self):
        pair = Pair("0.5.23")
        for rooms in (0, 100):
            for room in range(rooms):
                pair.enters(f"rid-{room}", room)
            hooked = pair.scheduler.process_disagg_prefill_inflight_queue
            pairs = [(cost(hooked), cost(hooked.__wrapped__)) for _ in range(15)]
            added = statistics.median(one - other for one, other in pairs)
            bare = statistics.median(other for _, other in pairs)
            print(f"poll of {rooms} rooms: {bare:.1f} µs, hooked {added:+.1f} µs", file=sys.stderr)


def cost(call, calls=200):
    """Microseconds of this thread's time for a call."""
    start = time.thread_time_ns()
    for _ in range(calls):
        call()
    return (time.thread_time_ns() - start) / calls / 1000


if __name__ == "__main__":
    unittest.main()
