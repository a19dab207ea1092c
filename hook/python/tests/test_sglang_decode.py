"""The plugin around the real pass over decode's queues, of several versions."""

import types
import unittest
from unittest import mock

import sglang_parts as parts
import sglang_wheel
from inflightd_hook.sglang import attach, engine
from test_hook import BEATS, OUTCOME, PEERS, PHASE, RID

TRANSFERRING, EXEMPT, PREALLOC = 3, 5, 7


class Queue:
    """A ``DecodePreallocQueue`` or ``DecodeTransferQueue``: what leaves is said by the test."""

    def __init__(self):
        self.queue, self.leaving, self.retracted_queue = [], [], []
        self.kv_manager = parts.manager()

    def extend(self, entries):
        self.queue.extend(entries)

    def _pop(self):
        gone, self.leaving = self.leaving, []
        self.queue = [entry for entry in self.queue if entry not in gone]
        return gone

    def pop_preallocated(self):
        return self._pop(), []

    def pop_transferred(self):
        return [entry.req for entry in self._pop()]

    def resume_retracted_reqs(self):
        return []

    def resolve_deferred_releases(self):
        pass


def scheduler_of(version):
    name = "SchedulerDisaggregationDecodeMixin.process_decode_queue"
    options = types.SimpleNamespace(
        disaggregation_decode_enable_offload_kvcache=False,
        disaggregation_decode_polling_interval=1,
        disaggregation_decode_host_receive_threshold=1,
    )
    (process,) = sglang_wheel.lift(
        version, "disaggregation.decode", name, get_disagg=lambda: options
    )

    class Scheduler:
        enable_decode_hicache = enable_hisparse = False
        process_decode_queue = process
        server_args = options
        disaggregation_mode = types.SimpleNamespace(value="decode")

        def __init__(self):
            self.waiting_queue = []
            self.disagg_decode_prealloc_queue = Queue()
            self.disagg_decode_transfer_queue = Queue()

    modules = {attach.SCHEDULER: types.SimpleNamespace(Scheduler=Scheduler)}
    with mock.patch.dict("sys.modules", modules):
        attach.patch_classes()
    with mock.patch.object(attach.inflightd_hook, "open_worker", parts.opened):
        return Scheduler()


class Decode(unittest.TestCase):
    def test_a_room_waits_for_memory_then_for_its_bytes(self):
        for version in sglang_wheel.RUN:
            with self.subTest(version):
                scheduler = scheduler_of(version)
                table, beats = parts.table(), parts.table().word(BEATS)
                prealloc = scheduler.disagg_decode_prealloc_queue
                transfer = scheduler.disagg_decode_transfer_queue
                entry = types.SimpleNamespace(req=parts.request("rid-9", 9, None))
                prealloc.queue.append(entry)
                scheduler.process_decode_queue()
                (seq,) = table.seqs()
                self.assertEqual((table.text(seq, RID), table.count(seq, PHASE)),
                                 ("rid-9", PREALLOC))
                prealloc.leaving = [entry]
                scheduler.process_decode_queue()
                self.assertEqual((table.seqs(), table.count(seq, PHASE)), ([seq], TRANSFERRING))
                transfer.leaving = [entry]
                scheduler.process_decode_queue()
                self.assertEqual((table.seqs(), table.entry(seq, OUTCOME)), ([], 1))
                self.assertEqual(scheduler.waiting_queue, [entry.req])
                self.assertGreater(table.word(BEATS), beats)

    def test_a_room_names_the_ranks_that_send_it_by_the_addresses_they_state(self):
        scheduler, told = scheduler_of("0.5.23"), []
        infos = [{"rank_ip": "10.0.0.1", "rank_port": 41001, "is_dummy": False},
                 types.SimpleNamespace(rank_ip="10.0.0.1", rank_port=41002)]
        receivers = [types.SimpleNamespace(bootstrap_infos=infos),
                     types.SimpleNamespace(bootstrap_infos=None), None]
        for receiver in receivers:
            entry = types.SimpleNamespace(req=parts.request("r", 1, None), kv_receiver=receiver)
            told.append(engine.senders(entry))
        self.assertEqual(told[0], [("endpoint", "10.0.0.1:41001"), ("endpoint", "10.0.0.1:41002")])
        self.assertEqual(told[1:], [[], []])
        entry = types.SimpleNamespace(req=parts.request("r", 1, None), kv_receiver=receivers[0])
        scheduler.disagg_decode_prealloc_queue.queue.append(entry)
        scheduler.process_decode_queue()
        (seq,) = parts.table().seqs()
        table = parts.table()
        self.assertEqual(table.entry(seq, PEERS), 2)
        self.assertEqual(table.text(seq, PEERS + 2), "10.0.0.1:41001")

    def test_what_fails_and_what_is_fake_is_told_as_that(self):
        scheduler = scheduler_of("0.5.23")
        prealloc, table = scheduler.disagg_decode_prealloc_queue, parts.table()
        failed = types.SimpleNamespace(req=parts.request("bad", 1, None))
        fake = types.SimpleNamespace(req=parts.request("fake", 2, None, host="2.2.2.2"))
        prealloc.queue.extend([failed, fake])
        scheduler.process_decode_queue()
        seqs = table.seqs()
        self.assertEqual([table.count(seq, PHASE) for seq in seqs], [PREALLOC, EXEMPT])
        parts.prepare_abort(failed.req, "Decode handshake failed")
        prealloc.queue = [fake]
        scheduler.process_decode_queue()
        self.assertEqual(table.entry(seqs[0], OUTCOME), 2)


if __name__ == "__main__":
    unittest.main()
