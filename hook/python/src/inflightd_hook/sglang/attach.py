"""Puts the hook's calls around SGLang's: on two classes before a scheduler is built, and on the
objects of the one that was.

The engine's own call is made exactly as it was asked for; what it returns or raises passes
through unchanged, whatever the hook's part does.
"""

import functools
import importlib
import logging
import sys
from time import monotonic

import inflightd_hook
from inflightd_hook.sglang import engine, gate, wants_commands
from inflightd_hook.sglang.commands import Commands
from inflightd_hook.sglang.contain import Faults
from inflightd_hook.sglang.decode import DecodeQueues
from inflightd_hook.sglang.queue import Beat, InflightQueue
from inflightd_hook.sglang.shards import Shards
from inflightd_hook.sglang.vitals import Vitals, forget, meet, missing

log = logging.getLogger("inflightd_hook")

SCHEDULER = "sglang.srt.managers.scheduler"
FAST_QUEUES = ("sglang.srt.disaggregation.common.utils", "sglang.srt.disaggregation.utils")
"""Where ``FastQueue`` is: the second before 0.4.10."""

faults = Faults()
_shards = []
"""The :class:`Shards` of this process, once its scheduler is built."""
_commands = []
"""Its :class:`Commands`, where it can do as it is asked."""
_hooked = []
"""What was put on objects: the object, the name, and what it had of its own before."""
_NOTHING = object()


def put(holder, name, hooked):
    """Puts a hooked call on one object, until :func:`take_back`."""
    _hooked.append((holder, name, vars(holder).get(name, _NOTHING)))
    setattr(holder, name, hooked)


def take_back():
    """Leaves every object as it was, the last first."""
    while _hooked:
        holder, name, before = _hooked.pop()
        if before is _NOTHING:
            vars(holder).pop(name, None)
        else:
            setattr(holder, name, before)
    faults.ends.clear()
    while _commands:
        _commands.pop().close()
    _shards.clear()
    forget()


def patch_classes():
    """Patches ``Scheduler`` and ``FastQueue`` of the modules that are loaded, once."""
    scheduler = getattr(sys.modules.get(SCHEDULER), "Scheduler", None)
    if scheduler is None or hasattr(scheduler, "_inflightd"):
        return
    scheduler._inflightd = True
    for module in FAST_QUEUES:
        fast_queue = _fast_queue(module)
        if fast_queue is not None and "get" in vars(fast_queue):
            # Threads wait inside `get` when the scheduler has been built: wrapped any later, the
            # first chunk of each would not be seen.
            fast_queue.get = _served(fast_queue.get)
            if "put" in vars(fast_queue):
                fast_queue.put = _queued(fast_queue.put)
            break
    built = faults.contain("attaching to the scheduler", attach)
    original = scheduler.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        built(self)
        return result

    scheduler.__init__ = __init__


def _fast_queue(module):
    """The class of a module, which the scheduler may load much later itself."""
    try:
        return getattr(importlib.import_module(module), "FastQueue", None)
    except ImportError:
        return None


def _of(fast_queue):
    """Those that a ``FastQueue`` belongs to."""
    aside = gate.of(fast_queue)
    return [aside.shards] if aside is not None else _shards


def _queued(original):
    queued = faults.contain(
        "queueing a chunk",
        lambda fast_queue, item: [shards.queued(item) for shards in _of(fast_queue)],
    )

    @functools.wraps(original)
    def put(self, item, *args, **kwargs):
        queued(self, item)
        return original(self, item, *args, **kwargs)

    return gate.mark(put)


def _served(original):
    back = faults.contain(
        "the end of a chunk", lambda fast_queue: [shards.back() for shards in _of(fast_queue)]
    )
    known = faults.contain("meeting a thread", meet)
    due = faults.contain("going on with a chunk", lambda aside: aside.due())
    taken = faults.contain("taking a chunk", _taken)

    @functools.wraps(original)
    def get(self, *args, **kwargs):
        known()
        back(self)
        while True:
            aside = gate.of(self)
            if aside is not None and aside.chunks:
                item = due(aside)
                item = aside.left() if item is None else item
                if item is not None:
                    return item
            item = original(self, *args, **kwargs)
            if item is gate.WAKE:
                gate.of(self).woken()
                continue
            kept = taken(self, item)
            if kept is None and aside is not None:
                kept = aside.keeps(item)
            if not kept:
                return item

    return gate.mark(get)


def _taken(fast_queue, item):
    """A thread has taken a chunk. Gives True where it was set aside."""
    aside = gate.of(fast_queue)
    if aside is not None:
        return aside.taken(item)
    for shards in _shards:
        shards.taken(item)
    return False


def attach(scheduler):
    """Opens the worker of a scheduler that was just built and hooks its objects."""
    role = engine.role(scheduler)
    manager = engine.manager(scheduler)
    if role is None or manager is None:
        return
    worker = inflightd_hook.open_worker(
        role,
        "sglang",
        engine.version(),
        ranks=engine.ranks(scheduler, manager),
        nnodes=engine.nnodes(scheduler),
        identities=engine.identities(manager),
    )
    if not worker.is_on:
        return
    hook_switch(scheduler, worker)
    hook = attach_decode if role == "decode" else attach_prefill
    transfers = hook(scheduler, worker, manager)
    lacks = missing(scheduler, manager, transfers)
    worker.gauge("missing", sum(lacks))
    log.info(
        "inflightd: reports the queues of SGLang %s, %s%s; not shown by it: %s",
        engine.version(),
        role,
        f", transfers by {transfers}" if transfers else "",
        ", ".join(lacks.values()) or "nothing",
    )


def hook_switch(scheduler, worker):
    """A scheduler that changes its role builds anew what is hooked: it is left, then attached to
    again."""
    original = getattr(scheduler, "init_disaggregation", None)
    if original is None:
        return

    def left():
        take_back()
        worker.close()

    leave = faults.contain("leaving a role", left)
    again = faults.contain("attaching to another role", attach)

    @functools.wraps(original)
    def init_disaggregation(*args, **kwargs):
        leave()
        result = original(*args, **kwargs)
        again(scheduler)
        return result

    put(scheduler, "init_disaggregation", init_disaggregation)


def attach_decode(scheduler, worker, _manager):
    """Hooks the queues of a decode."""
    hook_decode(scheduler, worker, DecodeQueues(scheduler, worker))


def attach_prefill(scheduler, worker, manager):
    """Hooks the queue of a prefill and the transfers of its threads; gives by what those are
    seen."""
    queue = InflightQueue(scheduler, worker)
    shards = Shards(worker, queue, manager)
    _shards.append(shards)
    ranks = queue.compare_ranks if engine.has_ranks(manager) else None
    hook_queue(scheduler, worker, queue, ranks, commands_of(worker, queue, shards, manager))
    hook_sends(scheduler, queue, shards, manager)
    transfers = hook_nixl(manager, shards) or hook_mooncake(manager, shards)
    shards.by_chunk = transfers is None and engine.has_threads(manager)
    return "whole chunks" if shards.by_chunk else transfers


def commands_of(worker, queue, shards, manager):
    """What does as the agent asks; None where this engine or the environment does not have it."""
    fast_queues = getattr(manager, "transfer_queues", None) or ()
    is_seen = bool(fast_queues) and all(gate.is_gated(each) for each in fast_queues)
    if not (is_seen and engine.can_fail(manager) and wants_commands()):
        return None
    threads = gate.Gate(worker, queue, shards, fast_queues)
    commands = Commands(worker, queue, manager, threads, faults)
    _commands.append(commands)
    faults.ends.append(threads.end)
    return commands


def hook_queue(scheduler, worker, queue, ranks, commands):
    """Around each poll of the queue: what entered, what left, and that it was polled; and what is
    asked of its rooms, where that is done."""
    # A table that nobody keeps up to date would accuse healthy rooms: better none.
    poll = faults.contain("the inflight queue", queue.poll, last=worker.close)
    before = after = polled = None
    if commands is not None:
        before = faults.contain("what the agent asks", commands.before)
        after = faults.contain("what the agent asked", commands.after)
        waits = commands.gate
        polled = faults.contain("waking threads", waits.polled, last=waits.settle)
    vitals = Vitals(scheduler, worker, faults, also=ranks)
    look = faults.contain("the engine's vitals", vitals.look)
    original = scheduler.process_disagg_prefill_inflight_queue

    @functools.wraps(original)
    def process(*args, **kwargs):
        poll()
        if before is not None:
            before()
        result = original(*args, **kwargs)
        now = monotonic()
        poll(now)
        if commands is not None and (commands.known or waits.waiting):
            after()
            polled()
        if now >= vitals.due:
            look()
        return result

    put(scheduler, "process_disagg_prefill_inflight_queue", process)


def hook_decode(scheduler, worker, queues):
    """After each pass over the queues of a decode."""
    compare = faults.contain("the queues of decode", queues.compare, last=worker.close)
    beat = Beat(worker)
    vitals = Vitals(scheduler, worker, faults)
    look = faults.contain("the engine's vitals", vitals.look)
    original = scheduler.process_decode_queue

    @functools.wraps(original)
    def process(*args, **kwargs):
        result = original(*args, **kwargs)
        compare()
        now = monotonic()
        beat.tell(now)
        if now >= vitals.due:
            look()
        return result

    put(scheduler, "process_decode_queue", process)


def hook_sends(scheduler, queue, shards, manager):
    """Around each chunk that the scheduler hands on; the last follows the entry at once."""
    sending = faults.contain("the entry of a request", queue.sending)
    # Before transfers had threads of their own (NIXL up to 0.5.11) they were posted in here.
    in_here = getattr(manager, "agent", None) is not None and not engine.has_threads(manager)
    begin = faults.contain("sending", lambda req: shards.begin_here(req.bootstrap_room))
    end = faults.contain("the end of sending", shards.pause)
    original = scheduler.send_kv_chunk

    @functools.wraps(original)
    def send_kv_chunk(*args, **kwargs):
        req = kwargs.get("req", args[0] if args else None)
        sending(req, kwargs.get("last_chunk", args[1] if len(args) > 1 else False))
        if not in_here:
            return original(*args, **kwargs)
        begin(req)
        try:
            return original(*args, **kwargs)
        finally:
            end()

    put(scheduler, "send_kv_chunk", send_kv_chunk)


def hook_nixl(manager, shards):
    """Around the posts of a NIXL agent and the readings of their states."""
    agent = getattr(manager, "agent", None)
    if not (hasattr(agent, "transfer") and hasattr(agent, "check_xfer_state")):
        return None
    posting = faults.contain("posting a transfer", shards.posting)
    polled = faults.contain("the state of a transfer", shards.polled)
    transfer, check = agent.transfer, agent.check_xfer_state

    @functools.wraps(transfer)
    def hooked_transfer(handle, *args, **kwargs):
        posting(handle)
        state = None
        try:
            state = transfer(handle, *args, **kwargs)
            return state
        finally:
            polled(handle, state)

    @functools.wraps(check)
    def hooked_check(handle, *args, **kwargs):
        state = check(handle, *args, **kwargs)
        polled(handle, state)
        return state

    put(agent, "transfer", hooked_transfer)
    put(agent, "check_xfer_state", hooked_check)
    return "NIXL"


def hook_mooncake(manager, shards):
    """Around the transfer calls of Mooncake's engine, which return when their bytes are there."""
    transfers = None if engine.calls_elsewhere(manager) else getattr(manager, "engine", None)
    names = [name for name in ("batch_transfer_sync", "transfer_sync") if hasattr(transfers, name)]
    for name in names:
        put(transfers, name, _called(getattr(transfers, name), shards))
    return "Mooncake" if names else None


def _called(original, shards):
    calling = faults.contain("a transfer call", shards.calling)
    called = faults.contain("the end of a transfer call", shards.called)
    total = faults.contain("the bytes of a transfer call", _total)

    @functools.wraps(original)
    def call(*args, **kwargs):
        nbytes = total(args, kwargs) or 0
        chunk, ok = calling(nbytes), False
        try:
            result = original(*args, **kwargs)
            ok = result == 0
            return result
        finally:
            called(chunk, nbytes, ok)

    return call


def _total(args, kwargs):
    """Bytes of ``(session, buffers, addresses, lengths)``, or of one ``length``."""
    stated = kwargs.get("lengths", kwargs.get("length", args[3] if len(args) > 3 else 0))
    return int(stated) if hasattr(stated, "__index__") else int(sum(stated))
