"""SGLang's real transfer threads with what the rest of their manager is to them, and a scheduler
that is hooked as the plugin hooks it."""

import collections
import functools
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
from test_hook import THREAD_WORDS, THREADS

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


def nixl(version, agent, queues=2, more=()):
    """A ``NixlKVManager`` with its real worker, whose sends post a handle each.

    more: other functions of its.
    """
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
    return manager_of([*functions, *more], agent=agent, queues=queues)


def manager_of(functions, queues=1, **fields):
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


class Case(unittest.TestCase):
    """A test with a scheduler, a manager and its threads."""

    def setUp(self):
        attach._shards.clear()

    def start(self, manager, version="0.5.23", rank=0, running=True):
        opened = functools.partial(parts.opened, rank=rank)
        with mock.patch.object(attach.inflightd_hook, "open_worker", opened):
            self.scheduler = parts.scheduler_class(version)(manager)
        self.table, self.manager = parts.table(rank), manager
        self.threads = []
        for queue in manager.transfer_queues if running else ():
            thread = threading.Thread(target=manager.transfer_worker, args=(queue,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def enters(self, room, pages=4, sender=parts.Sender):
        info = parts.info(f"decode-{room}")
        vars(info).update(room=room, required_dst_info_num=1, dst_kv_indices=range(64),
                          decode_prefix_len=0, dst_port=7000, dst_aux_index=0)
        self.manager.transfer_infos[room] = {info.agent_name: info}
        self.manager.decode_kv_args_table[info.agent_name] = types.SimpleNamespace(
            requires_dcp_relayout=False, kv_xfer_segments=None, dst_homogeneous_mem_kind="VRAM",
            decode_tp_size=2, decode_tp_rank=0, dst_kv_ptrs=[], dst_aux_ptrs=[], gpu_id=0)
        self.manager.request_status[room] = KVPoll.WaitingForInput
        return parts.request(f"rid-{room}", room, self.manager, pages=pages, sender=sender)

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
        return self._slot(thread, 1)

    def early(self, thread):
        """What the thread's early work comes after; None where it is at none."""
        word = self._slot(thread, EARLY)
        return word - 1 if word else None

    def _slot(self, thread, at):
        """A word of the thread's slot, which is the first of 16 that others have left it."""
        for step in range(16):
            slot = HEADER_WORDS + (thread.native_id + step) % THREADS * THREAD_WORDS
            if self.table.word(slot) == thread.native_id:
                return self.table.word(slot + at)
        return None

    def start_nothing(self, manager):
        threads, manager.transfer_queues = manager.transfer_queues, []
        self.start(manager)
        manager.transfer_queues = threads
