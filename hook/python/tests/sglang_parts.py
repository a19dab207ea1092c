"""What stands for the rest of SGLang around the code that the contract tests lift."""

import types
from unittest import mock

import sglang_wheel
import test_hook
from inflightd_hook.sglang import attach

KVPoll = types.SimpleNamespace(
    Failed=0, Bootstrapping=1, WaitingForInput=2, Transferring=3, Success=4
)
"""``disaggregation/base/conn.py``; the same numbers in every version."""


class FINISH_ABORT:
    """``managers/schedule_batch.py``."""

    def __init__(self, message="", status_code=None):
        self.message = message


class FINISH_LENGTH:
    """``managers/schedule_batch.py``."""

    def __init__(self, length):
        self.length = length


def prepare_abort(req, message, status_code=None):
    """``disaggregation/utils.py``, 0.5.23."""
    req.finished_reason = FINISH_ABORT(message, status_code)


class Sender:
    """A ``CommonKVSender`` of 0.5.23 as the queue sees it."""

    def __init__(self, manager, pages):
        self.kv_mgr, self.num_kv_indices = manager, pages
        self.state, self.reason = KVPoll.WaitingForInput, None
        self.conclude_state = None

    def poll(self):
        return self.state

    def failure_exception(self):
        raise RuntimeError(self.reason)

    def clear(self):
        pass

    def get_transfer_metric(self):
        return mock.MagicMock()


class FakeKVSender(Sender):
    """``disaggregation/fake/conn.py``: nothing is sent."""


class _Opened:
    """One worker a rank for all tests: a process can open 16 in its life."""

    workers, tables = {}, {}


def opened(*args, rank=0, **options):
    """For ``open_worker``: the worker of the test before, emptied, or a new one."""
    if rank not in _Opened.workers:
        _Opened.workers[rank], _Opened.tables[rank] = test_hook.opened()
    for seq in _Opened.tables[rank].seqs():
        _Opened.workers[rank].remove(seq, "aborted")
    return _Worker(rank, (args, options))


def table(rank=0):
    """The table of the rank's worker that was opened last."""
    return _Opened.tables[rank]


class _Worker:
    """A worker that knows with what it was opened, and is another one after its close."""

    def __init__(self, rank, stated):
        self._worker, self._rank, self.stated = _Opened.workers[rank], rank, stated

    def __getattr__(self, name):
        return getattr(self._worker, name)

    def close(self):
        self._worker.close()
        _Opened.workers.pop(self._rank, None)


def manager(**more):
    """What the queue reads of a ``NixlKVManager``."""
    infos = {}
    ranks = {"attn_tp_rank": 1, "attn_tp_size": 2, "pp_rank": 0, "pp_size": 1}
    return types.SimpleNamespace(
        agent=types.SimpleNamespace(name="prefill-agent"),
        transfer_infos=infos,
        transfer_queues=[],
        kv_item_lens_sum=1000,
        kv_args=types.SimpleNamespace(kv_item_lens=[500, 500], kv_data_ptrs=[1, 2]),
        local_ip="10.0.0.1",
        rank_port=4000,
        **ranks,
        **more,
    )


def info(agent, dummy=False):
    """A ``TransferInfo`` of ``nixl/conn.py``: ``is_dummy`` is a field since 0.5.20."""
    return types.SimpleNamespace(
        agent_name=agent, endpoint="10.0.0.2", dst_port=7000, is_dummy=dummy
    )


def request(rid, room, manager, pages=4, sender=Sender, host="10.0.0.1"):
    """A ``Req`` whose prefill has finished."""
    return types.SimpleNamespace(
        rid=rid,
        bootstrap_room=room,
        bootstrap_host=host,
        disagg_kv_sender=sender(manager, pages),
        pending_bootstrap=False,
        finished_reason=None,
        return_logprob=False,
        origin_input_ids=[],
        return_routed_experts=False,
        cache_request_handle=None,
        time_stats=mock.MagicMock(),
    )


_lifted = {}


def scheduler_class(version):
    """A ``Scheduler`` with the real poll of the queue, patched as the plugin patches it."""
    names = ["SchedulerDisaggregationPrefillMixin.process_disagg_prefill_inflight_queue"]
    mixin = "SchedulerDisaggregationPrefillMixin"
    more = [f"{mixin}.handle_inflight_transfer_failure", f"{mixin}.handle_pending_bootstrap"]
    names += more if version > "0.5.15" else []
    given = {
        "KVPoll": KVPoll,
        "FINISH_ABORT": FINISH_ABORT,
        "FINISH_LENGTH": FINISH_LENGTH,
        "FAKE_BOOTSTRAP_HOST": "2.2.2.2",
        "prepare_abort": prepare_abort,
        "should_force_retry": lambda req: False,
        "poll_and_all_reduce_attn_cp_tp_group": lambda pollers, *_: [p.poll() for p in pollers],
    }
    if version not in _lifted:
        _lifted[version] = sglang_wheel.lift(version, "disaggregation.prefill", *names, **given)

    class Scheduler(_Scheduler):
        pass

    for function in _lifted[version]:
        setattr(Scheduler, function.__name__, function)
    modules = {attach.SCHEDULER: types.SimpleNamespace(Scheduler=Scheduler)}
    with mock.patch.dict("sys.modules", modules):
        attach.patch_classes()
    return Scheduler


class Rebuilt:
    """What ``Scheduler.init_disaggregation`` does when a test changes the role."""

    def init(scheduler):
        pass


class _Scheduler:
    """What ``process_disagg_prefill_inflight_queue`` asks of the rest of a scheduler."""

    def __init__(self, manager):
        self.disaggregation_mode = types.SimpleNamespace(value="prefill")
        self.disagg_prefill_bootstrap_queue = mock.MagicMock(kv_manager=manager)
        self.disagg_prefill_bootstrap_queue.finalize_bootstrap = self.finalize
        self.disagg_prefill_inflight_queue = []
        self.server_args = types.SimpleNamespace(nnodes=2)
        self.sent = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.__dict__[name] = mock.MagicMock(name=name)
        return value

    def init_disaggregation(self):
        Rebuilt.init(self)

    def finalize(self, req):
        req.pending_bootstrap = False
        return True

    def send_kv_chunk(self, req, last_chunk=False, end_idx=None):
        self.sent.append((req.rid, last_chunk))

    def finish_prefill(self, req):
        """The end of ``process_batch_result_disagg_prefill``, 0.5.23, for one request."""
        self.disagg_prefill_inflight_queue.append(req)
        if not req.pending_bootstrap:
            self.send_kv_chunk(req, last_chunk=True)
