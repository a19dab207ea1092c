"""How the engine is, said from time to time: memory, slots, threads, and what other ranks hold up."""

import threading
import time

from inflightd_hook.sglang import engine

LOOK_S = 0.1
"""How often ranks are compared, in seconds."""
SAY_EVERY = 10
"""Looks from one saying of the gauges to the next."""

LISTENERS = ("bootstrap_thread", "decode_thread", "decode_listener_thread")
"""How the functions are called with which SGLang's threads hear from peers."""

_transfers = []
"""Threads that have asked for a chunk in this process."""
_met = threading.local()


def meet():
    """This thread asks for chunks: it transfers."""
    if not getattr(_met, "known", False):
        _met.known = True
        _transfers.append(threading.current_thread())


def forget():
    """The role's threads end with it; those of the next one are met as they come."""
    _transfers.clear()


def listeners():
    """The threads of this process that hear from peers."""
    return [thread for thread in threading.enumerate() if _listens(thread)]


def _listens(thread):
    target = getattr(getattr(thread, "_target", None), "__name__", "")
    return any(name in thread.name or name in target for name in LISTENERS)


class Vitals:
    """Says the gauges of one worker, whenever they are ``due``.

    also: called at every look.
    """

    def __init__(self, scheduler, worker, faults, also=None):
        self._scheduler, self._worker, self._faults = scheduler, worker, faults
        self._also = also
        # Those that live now: which have ended shows later.
        self._listeners = listeners()
        self.due, self._looks = 0.0, 0
        """When to look again, by ``time.monotonic``."""

    def look(self):
        """Compares ranks, and says the gauges every ``SAY_EVERY`` times."""
        self.due = time.monotonic() + LOOK_S
        if self._also is not None:
            self._also()
        self._looks += 1
        if self._looks % SAY_EVERY == 1:
            self._say()

    def _say(self):
        gauge = self._worker.gauge
        for name, value in engine.memory(self._scheduler).items():
            gauge(name, value)
        if _transfers:
            gauge("threads_started", len(_transfers))
            gauge("threads_alive", _alive(_transfers))
        if self._listeners:
            gauge("listeners_alive", _alive(self._listeners))
        gauge("faults", self._faults.count)


def missing(scheduler, manager, transfers):
    """What this engine does not show: ``{bit: words}``; the bits go into the gauge ``missing``.

    transfers: by what its transfer calls are seen; None where they are not.
    """
    prefill = engine.role(scheduler) == "prefill"
    shown = (
        (1, "which thread serves which room", not prefill or engine.has_threads(manager)),
        (2, "transfer calls", not prefill or transfers is not None),
        (4, "parked rooms", not prefill or hasattr(scheduler, "handle_pending_bootstrap")),
        (8, "dummy ranks", not prefill or hasattr(manager, "is_dummy_cp_rank")),
        (16, "ranks", hasattr(manager, "attn_tp_rank")),
        (32, "its own names", bool(engine.identities(manager))),
        (64, "free memory and slots", len(engine.memory(scheduler)) == 4),
        (128, "threads that hear from peers", bool(listeners())),
    )
    return {bit: words for bit, words, is_shown in shown if not is_shown}


def _alive(threads):
    return sum(thread.is_alive() for thread in threads)
