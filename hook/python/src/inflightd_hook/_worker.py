"""The worker: arguments are checked here, everything else is libinflight's."""

import ctypes
import logging
import operator
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from inflightd_hook import _library
from inflightd_hook._library import COMMANDS, GAUGES, OUTCOMES, PEER_KINDS, PHASES, RANKS, ROLES

log = logging.getLogger("inflightd_hook")

_U64 = (1 << 64) - 1
_U32 = (1 << 32) - 1
_TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


def open_worker(role, engine, version, ranks=None, nnodes=1, identities=()):
    """Opens this worker's table, once per scheduler process. Always returns a :class:`Worker`.

    role: ``"prefill"`` or ``"decode"``.
    engine, version: names of the engine, 56 bytes are kept of each.
    ranks: ``{"tp": (index, size), ...}`` of the dimensions dp, pp, tp and cp that are used.
    nnodes: nodes that the engine spans.
    identities: ``[(kind, value), ...]``, the names under which others address this worker; kind
        is ``"nixl_agent"``, ``"mooncake_session"`` or ``"endpoint"``, value a str (or bytes).

    Raises ``ValueError`` for a value that is not allowed. Where the table cannot be made it logs
    one line (logger ``inflightd_hook``) and the worker that it returns does nothing.
    """
    names = _library.peers(_pairs("identities", identities))
    args = _library.OpenArgs(
        size=ctypes.sizeof(_library.OpenArgs),
        role=_code("role", role, ROLES),
        nnodes=_number("nnodes", nnodes, _U32),
        engine=_text("engine", engine),
        version=_text("version", version),
        identities=names,
        identities_len=len(names),
    )
    for name, rank in _ranks(ranks).items():
        setattr(args, name, rank)
    try:
        library = _library.load()
    except (OSError, AttributeError) as why:
        log.warning("the hook is off: libinflight cannot be loaded: %s", why)
        return Worker(None, None)
    return Worker(library, _open(library, args))


def _open(library, args):
    handle, os_error = ctypes.c_void_p(), ctypes.c_int()
    code = library.inflight_open(
        ctypes.byref(args), ctypes.byref(handle), ctypes.byref(os_error)
    )
    if code != 0:
        why = library.inflight_errstr(code).decode()
        if os_error.value:
            why = f"{why}: {os.strerror(os_error.value)}"
        log.warning("the hook is off: %s", why)
    return handle.value


class Fail(NamedTuple):
    """Why a room is to be failed, and what may be said of it."""

    dwell_s: float
    """How long it had been in the queue."""
    tell_peers: bool
    """Its far ends may be told."""
    reason: str
    """The finding and its cause."""


class Worker:
    """One worker's inflight queue. Made by :func:`open_worker`; any thread may call it."""

    __slots__ = ("_library", "_handle", "_closed")

    def __init__(self, library, handle):
        self._library = library if handle else None
        self._handle = handle
        self._closed = False

    @property
    def is_on(self):
        """Whether the hook was set up and is not closed. A child of fork keeps True, but its calls
        do nothing."""
        return self._library is not None and not self._closed

    def append(self, room, rid, peers=(), expected_bytes=0, traceparent=None):
        """A request enters the inflight queue. Returns its sequence; 0 when the hook is off.

        room: any number from 0 to 2**64 - 1. A room that is still open leaves as superseded.
        rid: request id, 64 bytes are kept.
        peers: ``[(kind, value), ...]``, the far ends, as in ``identities``; 6 are kept.
        expected_bytes: what the engine expects to move, 0 where it does not know.
        traceparent: W3C trace context, 55 characters; None or empty where there is none.
        """
        far = _library.peers(_pairs("peers", peers))
        room = _number("room", room, _U64)
        expected_bytes = _number("expected_bytes", expected_bytes, _U64)
        rid, traceparent = _text("rid", rid), _trace(traceparent)
        if self._library is None:
            return 0
        return self._library.inflight_append(
            self._handle,
            room,
            rid,
            far,
            len(far),
            expected_bytes,
            traceparent,
        )

    def serve(self, seq):
        """This thread begins to work for that room. False: the room is held, leave it for now."""
        seq = _number("seq", seq, _U64)
        if self._library is None:
            return True
        return self._library.inflight_serve(self._handle, seq) != 0

    def serve_early(self, after):
        """This thread begins to work for a room that is not in the queue yet; ``serve`` says later
        which.

        after: sequence of the last room that had entered when this work was queued, 0 for none.
        """
        after = _number("after", after, _U64)
        if self._library is not None:
            self._library.inflight_serve_early(self._handle, after)

    def serve_end(self):
        """This thread ends its work for the room that it was serving, if any."""
        if self._library is not None:
            self._library.inflight_serve_end(self._handle)

    def post(self, seq, nbytes):
        """A transfer call of that many bytes begins."""
        seq, nbytes = _number("seq", seq, _U64), _number("nbytes", nbytes, _U64)
        if self._library is not None:
            self._library.inflight_post(self._handle, seq, nbytes)

    def done(self, seq, nbytes, ok):
        """A transfer call of that many bytes ended; ``ok``, a bool, says whether it went well."""
        if ok is not True and ok is not False:
            raise ValueError(f"ok is {_shown(ok)}: allowed are True and False")
        seq, nbytes = _number("seq", seq, _U64), _number("nbytes", nbytes, _U64)
        if self._library is not None:
            self._library.inflight_done(self._handle, seq, nbytes, ok)

    def phase(self, seq, name):
        """Where the room is: ``parked``, ``peers_ready``, ``transferring``, ``failed``,
        ``exempt`` (nothing is to be moved for it: never judged), ``done_here`` (this rank's
        bytes are delivered, its other ranks' are not) or, on decode, ``prealloc`` (it waits for
        memory)."""
        seq, code = _number("seq", seq, _U64), _code("name", name, PHASES)
        if self._library is not None:
            self._library.inflight_phase(self._handle, seq, code)

    def remove(self, seq, outcome):
        """The room leaves the queue: ``success``, ``failed``, ``aborted``, ``requeued`` or
        ``superseded``. Later calls for it are ignored."""
        seq, code = _number("seq", seq, _U64), _code("outcome", outcome, OUTCOMES)
        if self._library is not None:
            self._library.inflight_remove(self._handle, seq, code)

    def beat(self):
        """The worker has polled its queue, and what left was removed: after every poll, also of an
        empty queue."""
        if self._library is not None:
            self._library.inflight_beat(self._handle)

    def gauge(self, name, value):
        """How the worker is, once a second or so: ``kv_free`` and ``kv_total`` (tokens),
        ``slots_free`` and ``slots_total`` (metadata slots, one a room), ``threads_alive`` and
        ``threads_started`` (those that transfer), ``listeners_alive`` (those that hear from
        peers), ``faults`` (of the hook), ``missing`` (what it does not find, a bit each),
        ``commands`` (1 of a worker that does all that ``inflight.h`` says of failing a room, 0
        once it cannot go on with it)."""
        code, value = _code("name", name, GAUGES), _number("value", value, _U64)
        if self._library is not None:
            self._library.inflight_gauge(self._handle, code, value)

    def asked(self):
        """Changes when the agent asks something of a room. 0 where the hook is off."""
        return self._library.inflight_asked(self._handle) if self._library is not None else 0

    def command(self, seq):
        """What is asked of a room: ``open`` (nothing), ``held``, ``committed`` or
        ``carried_out``."""
        seq = _number("seq", seq, _U64)
        if self._library is None:
            return COMMANDS[0]
        return COMMANDS[self._library.inflight_command(self._handle, seq)]

    def carry_out(self, seq):
        """As a poll begins: a :class:`Fail` where this rank is to fail the room now, said once;
        else None."""
        seq = _number("seq", seq, _U64)
        fail = _library.Fail()
        if self._library is None:
            return None
        if self._library.inflight_carry_out(self._handle, seq, ctypes.byref(fail)) == 0:
            return None
        reason = fail.reason.decode("utf-8", "replace")
        return Fail(fail.dwell_ms / 1000, fail.tell_peers == 1, reason)

    def polled(self, seq, begun_ns):
        """After a poll that was reduced over all ranks and has left the room in the queue. True: a
        hold of it ended by that.

        begun_ns: ``time.monotonic_ns`` from before the calls of ``carry_out``.
        """
        seq, begun_ns = _number("seq", seq, _U64), _number("begun_ns", begun_ns, _U64)
        if self._library is None:
            return False
        return self._library.inflight_polled(self._handle, seq, begun_ns) != 0

    def close(self):
        """The worker ends: open rooms leave as aborted, later calls do nothing.

        No other thread may be inside a call. Not needed at the end of a process.
        """
        if self._library is not None:
            # The library is kept: a thread that calls too late is no reason for an exception.
            self._closed = True
            self._library.inflight_close(self._handle)


def is_traceparent(text):
    """Whether a text is a trace context that :meth:`Worker.append` takes."""
    return _TRACEPARENT.fullmatch(text.encode("utf-8", "replace")) is not None


def _code(field, value, allowed):
    try:
        return allowed[value]
    except Exception:  # what has no hash, for one
        raise ValueError(f"{field} is {_shown(value)}: allowed are {', '.join(allowed)}") from None


def _number(field, value, most):
    if isinstance(value, int) and 0 <= value <= most:
        return value
    try:
        # numpy's integers and the like.
        number = operator.index(value)
    except Exception:
        number = -1
    if 0 <= number <= most:
        return number
    raise ValueError(f"{field} is {_shown(value)}: allowed are the integers from 0 to {most}")


def _text(field, value):
    if value is None or isinstance(value, bytes):
        return value
    try:
        return str(value).encode("utf-8", "replace")
    except Exception as why:
        raise ValueError(f"{field} is {_shown(value)}, which has no text") from why


def _trace(value):
    text = _text("traceparent", value)
    if text and _TRACEPARENT.fullmatch(text) is None:
        raise ValueError(
            f"traceparent is {_shown(value)}: allowed are None and 55 characters such as "
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        )
    return text


def _shown(value):
    """A value in the message of an error, also one that does not show itself."""
    try:
        return repr(value)
    except Exception:
        return f"a {type(value).__name__}"


def _pairs(field, pairs):
    try:
        given = [(kind, value) for kind, value in pairs]
    except (TypeError, ValueError):
        raise ValueError(
            f"{field} is {_shown(pairs)}: allowed are lists of (kind, value)"
        ) from None
    return [(_code(f"kind in {field}", kind, PEER_KINDS), _name(field, value)) for kind, value in given]


def _name(field, value):
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, bytes):
        return value
    raise ValueError(f"value in {field} is {_shown(value)}: allowed are names, as str or bytes")


def _ranks(ranks):
    if ranks is None:
        return {}
    if not isinstance(ranks, Mapping):
        raise ValueError(
            f'ranks is {_shown(ranks)}: allowed are dicts such as {{"tp": (index, size)}}'
        )
    return {name: _rank(name, rank) for name, rank in ranks.items()}


def _rank(name, rank):
    if name not in RANKS:
        raise ValueError(f"ranks names {_shown(name)}: allowed are {', '.join(RANKS)}")
    try:
        index, size = rank
    except (TypeError, ValueError):
        raise ValueError(
            f"ranks[{name!r}] is {_shown(rank)}: allowed are (index, size)"
        ) from None
    size = _number(f"size of ranks[{name!r}]", size, _U32)
    index = _number(f"index of ranks[{name!r}]", index, _U32)
    if index >= max(size, 1):
        raise ValueError(f"ranks[{name!r}] is {_shown(rank)}: allowed are indexes below the size")
    return _library.Rank(index, size)
