"""Chunks of rooms that the agent holds: set aside by the thread that took them, which goes on with
others, and given back to the engine on that thread once their room is not held any more.

Nothing of it may be lost, and the chunks of a room keep their order: one that overtakes would let
the last conclude what is not sent.
"""

import threading
import time

from inflightd_hook._library import COMMANDS_VERSION

WAKE = object()
"""Put into a ``FastQueue`` for its thread to look at what it has set aside. No engine sees it."""
SETTLED_S = 3.0
"""So long after its end no fail of what a gate held can be carried out on any rank: two seconds at
most, and what may lie between an end and an agent that has seen it."""
_ASIDE = "_inflightd_aside"


def of(fast_queue):
    """What the thread of a ``FastQueue`` has set aside; None where nothing ever is."""
    return getattr(fast_queue, _ASIDE, None)


def is_gated(fast_queue):
    """Whether both ways through it are this hook's."""
    ways = (type(fast_queue).get, type(fast_queue).put)
    return all(getattr(way, _ASIDE, False) for way in ways)


def mark(way):
    """Marks a ``get`` or ``put`` that does what is expected here."""
    setattr(way, _ASIDE, True)
    return way


class Gate:
    """What the threads of one worker have set aside."""

    def __init__(self, worker, queue, shards, fast_queues):
        self._worker, self._queue = worker, queue
        self.is_stated = self.is_over = False
        """Whether the worker says that it does as it is asked; for good not any more."""
        self.is_settled = False
        """Whether no other rank can fail any more what was held as it ended."""
        self._over_at, self._late = 0.0, 0
        self.waiting = False
        """Something may be set aside. Set after it was, so that whoever clears it looks after that."""
        self._asides = [Aside(self, shards, fast_queue) for fast_queue in fast_queues]
        queue.gate = self

    def state(self):
        """From now on rooms may be held."""
        self.is_stated = True
        self._worker.gauge("commands", COMMANDS_VERSION)
        if self.is_over:
            self._worker.gauge("commands", 0)

    def end(self):
        """For good, from any thread: what is not held goes back to the engine at once, the rest
        once no other rank can fail it any more."""
        if self.is_over:
            return
        self._over_at, self.is_over = time.monotonic(), True
        if self.is_stated:
            self._worker.gauge("commands", 0)
        self.wake()

    def settle(self):
        """There is no more to wait for: all goes back to the engine at once."""
        self.end()
        self.is_settled = True
        self.wake()

    def polled(self):
        """After each poll that was reduced over all ranks, and what left was told."""
        if self.is_over and time.monotonic() > self._over_at + SETTLED_S:
            # The first may have begun before; what any rank has failed has left with the second.
            self._late += 1
            self.is_settled = self._late > 1
        self.wake()

    def wake(self):
        """Wakes each thread that can go on with something that it has set aside."""
        self.waiting = False
        for aside in self._asides:
            if aside.chunks:
                self.waiting = True
                if any(self.may_go(chunk.room) for chunk in aside.chunks):
                    aside.wake()

    def rooms(self):
        """Of what something is set aside."""
        return {chunk.room for aside in self._asides for chunk in aside.chunks}

    def may_go(self, room):
        """Whether a chunk that was set aside is worth a try."""
        if self.is_settled:
            return True
        if self._queue.entering == room:
            return False
        seq = self._queue.seqs.get(room)
        # What was failed stays so: the engine skips it once it has left, and no sooner. A table
        # that is closed says nothing of what was held.
        return seq is None or self._worker.is_on and self._worker.command(seq) == "open"


class Aside:
    """What one thread has set aside, oldest first: that thread alone changes it."""

    def __init__(self, gate, shards, fast_queue):
        self.gate, self.shards = gate, shards
        self.chunks = ()
        self._fast_queue = fast_queue
        self._put = type(fast_queue).put.__wrapped__
        self._waking = threading.Lock()
        """Taken while a ``WAKE`` is on its way."""
        setattr(fast_queue, _ASIDE, self)

    def wake(self):
        """From any thread: lets its thread look."""
        if self._waking.acquire(blocking=False):
            self._put(self._fast_queue, WAKE)

    def woken(self):
        """Its thread is about to look."""
        self._waking.release()

    def taken(self, item):
        """The thread has taken a chunk. Gives True where that is set aside."""
        room = getattr(item, "room", None)
        if room is None:
            return self._stops(item)
        behind = any(chunk.room == room for chunk in self.chunks)
        if not behind and not self.shards.taken(item, waits=not self.gate.is_settled):
            return False
        return self._keep(item)

    def keeps(self, item):
        """:meth:`taken` once that has had a fault."""
        room = getattr(item, "room", None)
        if room is None:
            return self._stops(item)
        behind = any(chunk.room == room for chunk in self.chunks)
        return (behind or not self.gate.may_go(room)) and self._keep(item)

    def _keep(self, item):
        # Nothing can fail after it: what is here and with the engine would be sent twice.
        self.chunks += (item,)
        self.gate.waiting = True
        return True

    def _stops(self, item):
        """An engine that stops its threads gets back first what it gave them before."""
        if not self.chunks or self.gate.is_settled:
            return False
        self.gate.settle()
        self._put(self._fast_queue, item)
        return True

    def due(self):
        """The first chunk that is not to wait any more, as taken by this thread; None without."""
        tried = set()
        for chunk in self.chunks:
            if chunk.room not in tried and self.gate.may_go(chunk.room):
                if not self.shards.taken(chunk, waits=not self.gate.is_settled):
                    return self._without(chunk)
            tried.add(chunk.room)
        return None

    def left(self):
        """:meth:`due` once that has had a fault."""
        for chunk in self.chunks if self.gate.is_over else ():
            if self.gate.may_go(chunk.room):
                return self._without(chunk)
        return None

    def _without(self, chunk):
        self.chunks = tuple(kept for kept in self.chunks if kept is not chunk)
        return chunk
