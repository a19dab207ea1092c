"""What is read from SGLang's objects. Nothing here changes one.

Every name of SGLang's that is read is in ``names.py``. What an engine of another version lacks
reads as not known: features are looked for, versions are not.
"""

import sys
from importlib import metadata

from inflightd_hook._worker import is_traceparent

FAKE_HOST = "2.2.2.2"
"""``disaggregation.utils.FAKE_BOOTSTRAP_HOST``: warm-up and health requests; nothing is sent."""

ABORTS = ("Aborted by AbortReq", "Aborted by decode-side abort")
"""How SGLang words the end of a request that a client, an operator or decode gave up."""

FAILED = 0
"""``KVPoll.Failed``, a plain number in every version."""


def version():
    """SGLang's version as its package says it."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return getattr(sys.modules.get("sglang"), "__version__", "unknown")


def role(scheduler):
    """``prefill`` or ``decode``; None for an engine that does both."""
    mode = getattr(getattr(scheduler, "disaggregation_mode", None), "value", None)
    return mode if mode in ("prefill", "decode") else None


def manager(scheduler):
    """The KV manager of the scheduler's role, or None."""
    name = {"prefill": "disagg_prefill_bootstrap_queue", "decode": "disagg_decode_prealloc_queue"}
    queue = getattr(scheduler, name.get(role(scheduler), ""), None)
    return getattr(queue, "kv_manager", None)


def ranks(scheduler, manager):
    """``{"tp": (index, size), …}`` of what is known; the attention group where there is one."""
    asked = {
        "tp": (("attn_tp_rank", "attn_tp_size"), ("tp_rank", "tp_size")),
        "cp": (("attn_cp_rank", "attn_cp_size"),),
        "pp": (("pp_rank", "pp_size"),),
        "dp": (("attn_dp_rank", "attn_dp_size"), ("system_dp_rank", "system_dp_size")),
    }
    found = {}
    for dimension, names in asked.items():
        pairs = [_pair(holder, *pair) for pair in names for holder in (manager, scheduler)]
        pairs = [pair for pair in pairs if pair is not None]
        # Attention DP of one says nothing where whole replicas are numbered.
        if pairs:
            found[dimension] = max(pairs, key=lambda pair: pair[1] > 1)
    return found


def _pair(holder, index, size):
    index, size = getattr(holder, index, None), getattr(holder, size, None)
    whole = isinstance(index, int) and isinstance(size, int)
    return (index, size) if whole and 0 <= index < size else None


def nnodes(scheduler):
    """Nodes that the engine spans; 1 where it does not say."""
    stated = getattr(getattr(scheduler, "server_args", None), "nnodes", None)
    return stated if isinstance(stated, int) and stated > 0 else 1


def identities(manager):
    """The names under which the other side addresses this worker: ``[(kind, value), …]``."""
    names = []
    agent = getattr(getattr(manager, "agent", None), "name", None)
    if isinstance(agent, str):
        names.append(("nixl_agent", agent))
    session = getattr(manager, "get_session_id", None)
    if callable(session) and getattr(manager, "engine", None) is not None:
        names.append(("mooncake_session", str(session())))
    host, port = getattr(manager, "local_ip", None), getattr(manager, "rank_port", None)
    if host and port:
        names.append(("endpoint", f"{host}:{port}"))
    return names


def _infos(manager, room):
    """What decode has stated of a room by now. A copy: the engine's threads change it, and a worker
    pops it when it concludes."""
    infos = getattr(manager, "transfer_infos", None) or {}
    return dict(infos.get(room) or {})


def peers(manager, room):
    """The far ends of a room that decode has stated by now, dummies left out."""
    return [peer for key, info in _infos(manager, room).items() if (peer := _peer(key, info)) is not None]


def _peer(key, info):
    if is_dummy_info(info):
        return None
    if getattr(info, "agent_name", None) is not None:
        return ("nixl_agent", str(info.agent_name))
    if getattr(info, "mooncake_session_id", None) is not None:
        return ("mooncake_session", str(info.mooncake_session_id))
    host, port = getattr(info, "endpoint", None), getattr(info, "dst_port", None)
    return ("endpoint", f"{host}:{port}") if host and port else None


def senders(entry):
    """The prefill's ranks that a room of decode comes from, as far as its receiver knows them by now:
    by the same address each of them states as its own."""
    infos = getattr(getattr(entry, "kv_receiver", None), "bootstrap_infos", None)
    known = [(_field(info, "rank_ip"), _field(info, "rank_port")) for info in list(infos or ())]
    return [("endpoint", f"{host}:{port}") for host, port in known if host and port]


def _field(info, name):
    """A field of what the bootstrap server answered, which is a dict in most versions."""
    return info.get(name) if isinstance(info, dict) else getattr(info, name, None)


def is_dummy_info(info):
    """Whether a far end takes no part in the transfer. An attribute or, before 0.5.20, a call."""
    dummy = getattr(info, "is_dummy", False)
    return bool(dummy() if callable(dummy) else dummy)


def is_exempt(req, manager):
    """Whether nothing is to be moved for this request by this rank."""
    if getattr(req, "bootstrap_host", None) == FAKE_HOST or _is_fake(_sender(req)):
        return True
    if getattr(manager, "is_dummy_cp_rank", False):
        return True
    infos = list(_infos(manager, getattr(req, "bootstrap_room", None)).values())
    return bool(infos) and all(is_dummy_info(info) for info in infos)


def _sender(req):
    return getattr(req, "disagg_kv_sender", None)


def _is_fake(sender):
    return type(sender).__name__.startswith("Fake")


def page_bytes(manager):
    """Bytes of one page of KV over all layers of this rank, its copies counted; 0 if not known."""
    total = getattr(manager, "kv_item_lens_sum", None)
    if not isinstance(total, int):
        lens = getattr(getattr(manager, "kv_args", None), "kv_item_lens", None)
        total = sum(lens) if lens else 0
    copies = getattr(manager, "_kv_replica_factor", None)
    return total * copies if isinstance(copies, int) and copies > 0 else total


def expected_bytes(req, manager):
    """KV bytes that this rank is to send for the request, state and metadata left out."""
    pages = getattr(_sender(req), "num_kv_indices", None)
    return int(pages) * page_bytes(manager) if pages else 0


def is_parked(req):
    """Prefilled before decode has answered: nothing may be sent yet."""
    return bool(getattr(req, "pending_bootstrap", False))


def outcome(req):
    """How a request that has left the inflight queue ended."""
    reason = getattr(req, "finished_reason", None)
    if type(reason).__name__ == "FINISH_ABORT":
        message = str(getattr(reason, "message", ""))
        return "aborted" if any(text in message for text in ABORTS) else "failed"
    if reason is None:
        return "requeued" if is_parked(req) else "failed"
    return "success"


def received(req):
    """How a request that has left decode's queues ended: what arrived goes on, not finished."""
    return outcome(req) if getattr(req, "finished_reason", None) is not None else "success"


def memory(scheduler):
    """``kv_free`` and ``kv_total`` in tokens, ``slots_free`` and ``slots_total``, as far as known.

    What the prefix cache holds and would give up counts as free.
    """
    found = {}
    allocator = getattr(scheduler, "token_to_kv_pool_allocator", None)
    free = _called(allocator, "available_size")
    if free is not None:
        cached = _called(getattr(scheduler, "tree_cache", None), "evictable_size")
        found["kv_free"] = free + (cached or 0)
    slots = getattr(scheduler, "req_to_metadata_buffer_idx_allocator", None)
    stated = {
        "kv_total": getattr(scheduler, "max_total_num_tokens", None),
        "slots_free": _called(slots, "available_size"),
        "slots_total": getattr(slots, "size", None),
    }
    found.update((name, int(value)) for name, value in stated.items() if value is not None)
    return found


def _called(holder, name):
    method = getattr(holder, name, None)
    try:
        value = int(method()) if callable(method) else -1
    except TypeError:
        # Some caches count by kind and say several numbers.
        return None
    return value if value >= 0 else None


def own_state(req):
    """What this rank alone says of a request in the queue: ``done_here`` or ``failed`` once its
    own part has ended; None before."""
    state = getattr(_sender(req), "conclude_state", None)
    return {4: "done_here", 0: "failed"}.get(state) if isinstance(state, int) else None


def has_failed(manager, room):
    """Whether the manager holds the room for failed (``KVPoll.Failed``)."""
    return (getattr(manager, "request_status", None) or {}).get(room) == FAILED


def calls_elsewhere(manager):
    """Whether its transfer calls are made by threads of a pool, which serve no room."""
    return getattr(manager, "enable_custom_mem_pool", False) is True


def has_threads(manager):
    """Whether transfers have threads of their own, which take chunks from queues and stay with
    each until it is delivered. (MORI's hand what they have begun to yet another thread.)"""
    return hasattr(manager, "transfer_queues")


def has_ranks(manager):
    """Whether other ranks decide with this one when a request leaves the queue."""
    sizes = [getattr(manager, name, 1) for name in ("attn_tp_size", "attn_cp_size", "pp_size")]
    return any(isinstance(size, int) and size > 1 for size in sizes)


def traceparent(req):
    """W3C trace context of the request, where the engine traces; one that is not well formed is
    none, and no reason to lose the request."""
    trace = sys.modules.get("opentelemetry.trace")
    holder = getattr(getattr(req, "time_stats", None), "trace_ctx", None)
    context = getattr(holder, "root_span_context", None)
    if isinstance(context, dict) and "traceparent" in context:
        # As it came from the tokenizer's process, where this one does not trace.
        stated = str(context["traceparent"])
        return stated if is_traceparent(stated) else None
    if trace is None or context is None:
        return None
    span = trace.get_current_span(context).get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"


def targets(manager, room):
    """Where the far ends of a room are told of its end: ``[(host, port), …]``, dummies left out."""
    infos = _infos(manager, room).values()
    known = {(info.endpoint, info.dst_port): None for info in infos if not is_dummy_info(info)}
    return list(known)


def can_fail(manager):
    """Whether rooms can be failed on all their ranks by what this manager has: threads that take
    what is to be sent from a queue and stay with it, one pipeline stage, and a room's end that is
    known to keep its reason and to be told."""
    named = (
        getattr(manager, "failure_records", None),
        getattr(manager, "failure_lock", None),
        getattr(manager, "transfer_infos", None),
    )
    called = (
        getattr(manager, "conclude_failure", None),
        getattr(manager, "update_status", None),
        getattr(manager, "send_kv_status_message", None),
    )
    stages = getattr(manager, "pp_size", None)
    # With deferred allocation a status is told to decode as it is set, on the thread that sets it.
    blocks = getattr(manager, "deferred_bootstrap", None) is not None
    alone = isinstance(stages, int) and stages <= 1
    whole = has_threads(manager) and not calls_elsewhere(manager) and not blocks
    return alone and whole and None not in named and all(map(callable, called))


def can_be_failed(req):
    """Whether the request's sender is a real one that lets its end be decided."""
    return not _is_fake(_sender(req)) and hasattr(_sender(req), "conclude_state")
