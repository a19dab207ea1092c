"""What the agent asks of rooms, carried out on the real ends that SGLang gives them."""

import logging
import sys
import threading
import time
import unittest
from unittest import mock

import sglang_parts as parts
import sglang_wheel
from held_table import COMMITTED, FAILED, HELD, OPEN
from inflightd_hook.sglang import attach, engine
from sglang_failing import Failing, each_version, manager
from sglang_parts import KVPoll
from sglang_threads import PATIENCE, fast_queue
from test_sglang_queue import cost

REASON = ("inflightd: KV transfer failed on purpose: never_posted, after 61.2 s in the inflight "
          "queue")


class Carried(Failing):
    def commit(self, room=8, **how):
        req, seq = self.room(room)
        self.agent.hold(seq)
        self.agent.commit(seq, **how)
        return req, seq

    @each_version
    def test_a_committed_room_ends_as_failed_with_our_reason_and_its_far_ends_are_told(self, version):
        self.rank(version)
        req, _ = self.commit()
        infos = self.manager.transfer_infos[8]
        infos["twice"], infos["dummy"] = next(iter(infos.values())), parts.info("d", dummy=True)
        self.assertEqual(self.poll(), [req])
        self.assertIn(REASON, req.finished_reason.message)
        self.until(lambda: self.manager.told)
        self.assertEqual(self.manager.told, [([("10.0.0.2", 7000)], 8, KVPoll.Failed, REASON)])
        self.assertEqual(self.manager.failure_records, {})
        self.assertEqual((self.table.seqs(), attach._commands[0].known), ([], {}))
        self.assertEqual(attach.faults.count, self.faults)
        self.assertEqual(self.agent.stated(), 1)

    def test_whom_the_agent_does_not_want_told_is_not(self):
        self.rank()
        req, _ = self.commit(tell=False)
        self.assertEqual(self.poll(), [req])
        self.assertNotIn("inflightd-tell", [thread.name for thread in threading.enumerate()])
        self.assertEqual(self.manager.told, [])

    @each_version
    def test_a_rank_whose_own_part_is_done_fails_too(self, version):
        self.rank(version)
        req, _ = self.commit()
        self.manager.request_status[8] = KVPoll.Success
        req.disagg_kv_sender.conclude_state = KVPoll.Success
        self.assertEqual(self.poll(), [req])
        self.assertIn(REASON, req.finished_reason.message)

    def test_a_reason_that_the_engine_has_is_kept(self):
        self.rank()
        req, _ = self.commit()
        self.manager.record_failure(8, "NIXL_ERR_REMOTE_DISCONNECT")
        self.assertEqual(self.poll(), [req])
        self.assertIn("NIXL_ERR_REMOTE_DISCONNECT", req.finished_reason.message)
        self.assertNotIn("inflightd", req.finished_reason.message)

    def test_a_far_end_that_does_not_listen_holds_up_no_poll(self):
        self.rank()
        stands, goes = threading.Event(), threading.Event()

        def blocks(**_):
            stands.set()
            self.assertTrue(goes.wait(PATIENCE))

        with mock.patch.object(self.manager, "send_kv_status_message", blocks, create=True):
            first, _ = self.commit(8)
            self.assertEqual(self.poll(), [first])
            self.assertTrue(stands.wait(PATIENCE))
            second, _ = self.commit(10)
            self.assertEqual(self.poll(), [second])
            goes.set()

    def test_a_fail_that_comes_too_late_is_not_carried_out(self):
        self.rank()
        _, seq = self.room(8)
        self.agent.hold(seq, ahead_ms=0)
        self.agent.commit(seq)
        self.assertEqual(self.poll(), [])
        self.assertNotEqual(self.agent.command(seq)[0], FAILED)
        self.polls_until(lambda: self.agent.command(seq)[0] == OPEN)
        self.assertEqual(self.manager.request_status[8], KVPoll.WaitingForInput)
        self.assertEqual(attach._commands[0].known, {})

    def test_a_poll_that_was_not_reduced_ends_no_hold(self):
        self.rank()
        req, seq = self.room(8)
        self.agent.hold(seq, ahead_ms=-500)
        req.disagg_kv_sender.conclude_state = 17
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "Unexpected poll state 17"):
                self.poll()
            self.assertEqual(self.agent.command(seq)[0], HELD)
        req.disagg_kv_sender.conclude_state = None
        self.poll()
        self.assertEqual(self.agent.command(seq)[0], OPEN)

    def test_what_was_held_before_the_hook_looked_is_found(self):
        self.rank()
        _, first = self.room(8)
        self.agent.hold(first)
        self.poll()
        # The count has not changed since; the room is still looked at.
        self.agent.commit(first)
        self.assertEqual(len(self.poll()), 1)


class Stated(Failing):
    def stated(self):
        self.room(8)
        self.poll()
        return self.agent.stated()

    @each_version
    def test_a_worker_that_can_do_it_says_so_with_its_first_room(self, version):
        self.rank(version, running=False)
        self.poll()
        self.assertIsNone(self.agent.stated())
        self.assertEqual(self.stated(), 1)

    def test_so_does_a_rank_that_sends_nothing_and_not_for_a_warm_up(self):
        self.rank(running=False)
        self.manager.is_dummy_cp_rank = True
        self.scheduler.finish_prefill(self.enters(10, sender=parts.FakeKVSender))
        self.poll()
        self.assertIsNone(self.agent.stated())
        self.assertEqual(self.stated(), 1)

    def test_one_that_lacks_anything_says_nothing(self):
        lacks = {
            **{name: None for name in ("conclude_failure", "failure_records", "failure_lock",
                                       "update_status", "send_kv_status_message",
                                       "transfer_infos")},
            "pp_size": 2,
            "enable_custom_mem_pool": True,
            "deferred_bootstrap": object(),
        }
        for name, value in lacks.items():
            with self.subTest(name):
                made = manager("0.5.23")
                self.assertTrue(engine.can_fail(made))
                setattr(made, name, value)
                self.assertFalse(engine.can_fail(made))

    def test_one_whose_chunks_are_not_seen_says_nothing(self):
        hooked = fast_queue()
        for name in ("get", "put"):
            other = type("FastQueue", (hooked,), {name: lambda *_: None})
            made = manager("0.5.23")
            commands_of = lambda: attach.commands_of(None, None, None, made)  # noqa: E731
            made.transfer_queues = [hooked(), other()]
            self.assertIsNone(commands_of())
        made.transfer_queues = []
        self.assertIsNone(commands_of())

    def test_one_that_has_no_threads_says_nothing(self):
        # As MORI's manager, and NIXL's up to 0.5.11.
        made = manager("0.5.23")
        del made.transfer_queues
        with mock.patch.object(type(made), "__getattr__", side_effect=AttributeError):
            self.assertFalse(engine.can_fail(made))

    def test_a_sender_whose_end_is_not_known_says_nothing(self):
        self.rank(running=False)
        req, _ = self.room(8)
        del req.disagg_kv_sender.conclude_state
        with mock.patch.object(attach._commands[0].gate, "wake"):
            attach._commands[0].before()
        self.assertIsNone(self.agent.stated())

    def test_a_version_without_it_says_nothing(self):
        names = ["CommonKVManager.conclude_failure"]
        with self.assertRaises(StopIteration):
            sglang_wheel.lift("0.5.11", "disaggregation.common.conn", *names)
        old = parts.manager()
        del old.transfer_queues
        self.assertFalse(engine.can_fail(old))

    def test_a_fault_ends_it_for_good(self):
        self.rank()
        self.assertEqual(self.stated(), 1)
        _, seq = self.room(10)
        self.agent.hold(seq, ahead_ms=200)
        self.agent.commit(seq)
        broken = mock.patch.object(self.manager, "update_status", side_effect=KeyError("gone"))
        with broken, self.assertLogs("inflightd_hook", logging.WARNING):
            self.poll()
        self.assertEqual(self.agent.stated(), 0)
        _, seq = self.room(12)
        self.agent.hold(seq, ahead_ms=200)
        self.agent.commit(seq)
        self.polls_until(lambda: True)
        self.assertEqual((self.agent.command(seq)[0], self.agent.stated()), (COMMITTED, 0))

    def test_after_a_fault_holds_still_end_and_nothing_is_failed(self):
        self.rank()
        self.assertEqual(self.stated(), 1)
        with self.assertLogs("inflightd_hook", logging.WARNING):
            attach.faults.take("something", KeyError("gone"))
        _, seq = self.room(10)
        self.agent.hold(seq, ahead_ms=200)
        self.agent.commit(seq)
        self.polls_until(lambda: self.agent.command(seq)[0] == OPEN)
        self.assertEqual(self.manager.request_status[10], KVPoll.WaitingForInput)

    def test_what_fails_and_is_not_known_to_the_engine_is_not_sent_after_a_fault(self):
        self.rank("0.5.23")
        req, seq = self.room(8)
        self.agent.hold(seq)
        self.send(8, 4)
        self.until(self.aside_pages)
        self.agent.commit(seq)
        aside = self.aside()
        broken = mock.patch.object(self.manager, "update_status", side_effect=KeyError("gone"))
        state = req.disagg_kv_sender.poll

        def slow():
            # The thread has been woken meanwhile, and was given nothing.
            self.until(lambda: not aside._waking.locked())
            self.assertEqual(len(aside.chunks), 1)
            return state()

        late = mock.patch.object(req.disagg_kv_sender, "poll", slow)
        with broken, late, self.assertLogs("inflightd_hook", logging.WARNING):
            # What its sender was told first ends it on all ranks.
            self.assertEqual(self.poll(), [req])
        self.poll()
        self.until(lambda: not aside.chunks)
        self.assertEqual(self.manager.kv, [])


class Reduction:
    """The MIN over two ranks, each on its own thread."""

    def __init__(self):
        self._all = threading.Barrier(2, timeout=PATIENCE)
        self._polls = {}

    def reduce(self, polls):
        """For ``_all_reduce_polls`` of 0.5.23."""
        self._all.wait()
        self._polls[threading.get_ident()] = polls
        self._all.wait()
        least = [min(pair) for pair in zip(*self._polls.values(), strict=True)]
        self._all.wait()
        self._polls.clear()
        return least


class Ranks(Failing):
    """Two ranks of one engine, each with the real poll, threads and ends of 0.5.23."""

    def setUp(self):
        super().setUp()
        # Ranks are told apart by their worker; each has one thread that transfers.
        self.ranks = [Failing().rank(rank=rank) for rank in range(2)]
        one = Reduction()
        names = ("poll_and_all_reduce", "poll_and_all_reduce_attn_cp_tp_group")
        reduced = sglang_wheel.lift(
            "0.5.23", "disaggregation.utils", *names,
            _poll_with_failure_injection=lambda pollers: [poller.poll() for poller in pollers],
            _all_reduce_polls=lambda polls, group: one.reduce(polls) if group == "tp" else polls,
        )[1]
        for rank in self.ranks:
            rank.scheduler.attn_tp_cpu_group, rank.scheduler.attn_cp_cpu_group = "tp", "cp"
        poll = type(rank.scheduler).process_disagg_prefill_inflight_queue
        scope = {"poll_and_all_reduce_attn_cp_tp_group": reduced}
        patched = mock.patch.dict(poll.__globals__, scope)
        patched.start()
        self.addCleanup(patched.stop)

    def polls(self):
        """One poll on both ranks at once: what left on each."""
        left = [None, None]

        def poll(number):
            left[number] = self.ranks[number].poll()

        threads = [threading.Thread(target=poll, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        return left

    def held(self, ahead_ms=2000):
        """A room in both queues, held, with its chunk set aside on both ranks."""
        entered = [rank.room(8) for rank in self.ranks]
        for rank, (_, seq) in zip(self.ranks, entered):
            rank.agent.hold(seq, ahead_ms)
            rank.send(8, 4)
            rank.until(rank.aside_pages)
        return [req for req, _ in entered], [seq for _, seq in entered]

    def nobody_sent(self):
        for rank in self.ranks:
            rank.until(lambda rank=rank: not rank.aside_pages())
        self.assertEqual([rank.manager.kv for rank in self.ranks], [[], []])
        self.assertEqual(attach.faults.count, self.faults)

    def test_a_room_that_is_committed_on_both_fails_on_both_in_one_poll(self):
        reqs, seqs = self.held()
        self.assertEqual(self.polls(), [[], []])
        for rank, seq in zip(self.ranks, seqs):
            rank.agent.commit(seq)
        self.assertEqual(self.polls(), [[req] for req in reqs])
        for req in reqs:
            self.assertIn(REASON, req.finished_reason.message)
        self.nobody_sent()

    def test_one_rank_is_enough_for_both(self):
        reqs, seqs = self.held()
        self.ranks[1].agent.commit(seqs[1])
        self.assertEqual(self.polls(), [[req] for req in reqs])
        self.assertIn("another rank", reqs[0].finished_reason.message)
        self.assertIn(REASON, reqs[1].finished_reason.message)
        self.nobody_sent()

    def test_a_rank_whose_hook_had_a_fault_sends_nothing_that_the_other_fails(self):
        reqs, seqs = self.held()
        for rank, seq in zip(self.ranks, seqs):
            rank.agent.commit(seq)
        self.ranks[0].aside().gate.end()
        time.sleep(0.05)
        self.assertEqual(self.polls(), [[req] for req in reqs])
        self.nobody_sent()

    def test_a_rank_that_is_too_late_fails_by_the_other(self):
        reqs, seqs = self.held()
        second = self.ranks[1]
        for rank, seq in zip(self.ranks, seqs):
            rank.agent.commit(seq)
        slow = mock.Mock(return_value=None)
        with mock.patch.object(second.stays()._worker, "carry_out", slow, create=True):
            self.assertEqual(self.polls(), [[req] for req in reqs])
        slow.assert_called()
        self.nobody_sent()

    def test_nobody_begins_before_a_poll_of_both_from_after_the_last_moment(self):
        until = time.monotonic() + 0.028 + 0.1
        _, seqs = self.held(ahead_ms=30)
        while HELD in [rank.agent.command(seq)[0] for rank, seq in zip(self.ranks, seqs)]:
            sent = [kv for rank in self.ranks for kv in rank.manager.kv]
            self.assertTrue(not sent or time.monotonic() > until)
            self.polls()
        for rank in self.ranks:
            rank.until(lambda rank=rank: rank.manager.kv == [("decode-8", 4)])
        self.assertEqual(attach.faults.count, self.faults)


class Cost(Failing):
    """Prints what it adds to a poll of which nothing is asked; no test rests on a speed."""

    def test_print(self):
        self.rank(running=False)
        for room in range(8, 108):
            self.room(room)
        self.poll()
        commands = attach._commands[0]
        looks = attach.faults.contain("what is asked", commands.before)
        idle = min(cost(looks, 20_000) for _ in range(15))
        nothing = min(cost(lambda: None, 20_000) for _ in range(15))
        self.agent.hold(self.seq_of(8), ahead_ms=3_600_000)
        self.poll()
        held = min(cost(lambda: (commands.before(), commands.after()), 2000) for _ in range(15))
        print(f"a poll of 100 rooms of which nothing is asked: {idle - nothing:+.2f} µs, one held: "
              f"{held:+.1f} µs", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
