"""What the prefill keeps of its peers and of the rooms in its inflight queue."""

import math
import random
import threading
import time

FAULTS = {None, "never_post", "parked", "drop_status", "never_read", "thread_dies"}
"""What an append can ask for: `never_post` (no thread is ever told), `parked` (said to
wait for its peer, and left alone), `drop_status` (the worker thread sees the transfer
fail and tells nobody), `never_read` (nobody looks whether the transfer has ended), `thread_dies`
(the worker thread ends by an exception after the first of the room's chunks)."""


class Peer:
    """A decode this prefill can write to."""

    def __init__(self, name, address, size, door):
        self.name = name
        self.address = address
        self.size = size
        self.door = door


class Room:
    """One request's transfer, from append to removal."""

    def __init__(self, room, peer, size, chunk, page, offset, pace, fault, hook):
        self.room = room
        self.peer = peer
        self.size = size
        self.page = page
        self.offset = offset
        self.pace = pace
        self.fault = fault
        self.hook = hook
        self.handshake = False
        self.kept = []
        self.prepared = []
        self.given_up = False
        """Its handle is to be released, by the thread that polls it: NIXL frees it at once."""
        self.released = threading.Event()
        self.seq = 0
        self.status = "transferring"
        self._chunk = chunk
        self._left = self.chunks()

    def chunks(self):
        """How many chunks the room is sent in."""
        return max(1, math.ceil(self.size / self._chunk))

    def chunk(self, index):
        """(offset, bytes) of one chunk."""
        start = index * self._chunk
        return self.offset + start, min(self._chunk, self.size - start)

    def notice(self, index):
        """The notification text of one chunk, as SGLang up to 0.5.22 sends it."""
        last = int(index == self.chunks() - 1)
        return f"{self.room}_kv_{index}_{last}_0".encode()

    def chunk_done(self):
        """One shard serves all chunks of a room, so nothing else counts here."""
        self._left -= 1
        if self._left == 0:
            self.status = "success"


class Filler:
    """Rooms on paper: queue marks without any transfer, `count` of them open at a time.

    Each stays for at most `keep` seconds and another takes its place, so that the queue is long
    and no room in it is a stall.
    """

    def __init__(self, hook, peer, first, count, keep):
        self._hook = hook
        self._peer = peer
        self._next = first
        self._keep = keep
        now = time.monotonic()
        # Ages are spread, or all would leave in the same moment.
        self._open = [(now + keep * random.uniform(0.1, 1.0), self._append()) for _ in range(count)]
        self._open.sort()
        self._at = 0

    def _append(self):
        room, self._next = self._next, self._next + 1
        peers = [("nixl_agent", self._peer)]
        return self._hook.append(room, f"rid-{room}", peers=peers, expected_bytes=1 << 20)

    def turn(self, now):
        """Replace the rooms whose time is over."""
        # In order of their ends: a replaced room ends after all that are open.
        while self._open[self._at][0] <= now:
            self._hook.remove(self._open[self._at][1], "success")
            self._open[self._at] = (now + self._keep, self._append())
            self._at = (self._at + 1) % len(self._open)


def burst(hook, seq, marks):
    """So many queue marks on one room as fast as a thread can make them."""
    for _ in range(marks):
        hook.phase(seq, "transferring")


def in_background(call, *args):
    """Run `call` on a thread of its own."""
    threading.Thread(target=call, args=args, daemon=True).start()
