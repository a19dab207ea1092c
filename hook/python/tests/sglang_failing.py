"""SGLang's real ways to end a room, for the tests of what the agent asks."""

import logging
import threading
from unittest import mock

import sglang_parts as parts
import sglang_wheel
from held_table import Agent as Holder
from inflightd_hook.sglang import attach, gate
from sglang_parts import KVPoll
from sglang_threads import Agent, Case, nixl

VERSIONS = ("0.5.20", "0.5.23")
"""Those that have what failing a room takes."""

_MANAGER = ("update_status", "check_status", "record_failure", "conclude_transfer",
            "conclude_failure", "_room_notify_targets")
_SENDER = {
    "0.5.20": {"nixl": ("poll", "failure_exception"), "common": ("clear",)},
    "0.5.23": {"common": ("poll", "_poll_with_status", "failure_exception", "clear")},
}
_CLASSES = {"nixl": "NixlKVSender", "common": "CommonKVSender"}


def each_version(test):
    def run(self):
        for version in VERSIONS:
            with self.subTest(version):
                test(self, version)
                attach.take_back()

    return run


class KVTransferError(Exception):
    """``disaggregation/common/conn.py``."""

    def __init__(self, room, reason, is_from_another_rank=False):
        super().__init__(f"KVTransferError(bootstrap_room={room}): {reason}")
        self.is_from_another_rank = is_from_another_rank


def _lift(version, module, names):
    given = {"KVPoll": KVPoll, "KVTransferError": KVTransferError,
             "logger": logging.getLogger("sglang")}
    return sglang_wheel.lift(version, f"disaggregation.{module}.conn", *names, **given)


def manager(version, agent=None, queues=1):
    """A ``NixlKVManager`` that ends rooms as SGLang does, and keeps what it told their far ends in
    ``told``, what it sent in ``kv``."""
    functions = _lift(version, "common", [f"CommonKVManager.{name}" for name in _MANAGER])
    told, kv = [], []

    def send_kv_status_message(self, *, targets, bootstrap_room, status, failure_reason=None):
        told.append((targets, bootstrap_room, status, failure_reason))

    def send_kvcache(self, name, pages, *args, **kwargs):
        kv.append((name, len(pages)))
        return self._send("kv")

    more = [*functions, send_kv_status_message, send_kvcache]
    made = nixl(version, agent or Agent(), queues, more)
    vars(made).update(
        told=told, kv=kv, exceptions={}, failure_records={}, failure_lock=threading.Lock(),
        deferred_bootstrap=None, is_dummy_cp_rank=False, _deferred_ack_targets={},
        _deferred_ack_poisoned_rooms=set(), defer_decode_allocation=False,
        reports_transfer_latency=False, _staging_ctx=None,
    )
    return made


def sender(version, room):
    """For `parts.request`: a sender of that version with its real poll and its real end."""

    class Sender(parts.Sender):
        def __init__(self, manager, pages):
            super().__init__(manager, pages)
            self.bootstrap_room, self.trace_ctx = room, mock.MagicMock()
            self._send_failed, self._send_error = False, None
            self._transfer_start_time = None

    for module, names in _SENDER[version].items():
        for function in _lift(version, module, [f"{_CLASSES[module]}.{name}" for name in names]):
            setattr(Sender, function.__name__, function)
    return Sender


class Failing(Case):
    """A rank whose rooms may be failed, and the agent's side of its table."""

    def setUp(self):
        super().setUp()
        self.addCleanup(attach.take_back)
        self.faults = attach.faults.count

    def rank(self, version="0.5.23", queues=1, rank=0, running=True):
        """A scheduler with its manager; its threads only if they are to run."""
        self.version, self.nixl = version, Agent()
        self.nixl.first = "DONE"
        made = manager(version, self.nixl, queues)
        self.start(made, version, rank, running)
        self.agent = Holder(self.table)
        self.agent.forget()
        return self

    def room(self, room, pages=4):
        """A room enters the queue, with nothing sent. Gives its request and its sequence."""
        req = self.enters(room, pages, sender(self.version, room))
        self.scheduler.finish_prefill(req)
        return req, self.seq_of(room)

    def seq_of(self, room):
        return self.stays().seqs[room]

    def stays(self):
        """The hook's own list of what is in the queue."""
        return self.aside().shards._queue

    def aside(self, number=0):
        return gate.of(self.manager.transfer_queues[number])

    def aside_pages(self, number=0):
        """Of each chunk that is set aside: its room and pages."""
        return [(chunk.room, len(chunk.prefill_kv_indices)) for chunk in self.aside(number).chunks]

    def poll(self):
        return self.scheduler.process_disagg_prefill_inflight_queue()

    def polls_until(self, holds):
        def polled():
            self.poll()
            return holds()

        self.until(polled)
