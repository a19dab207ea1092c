"""Which thread works for which room, and the transfer calls that it makes.

A thread that transfers takes chunks from a ``FastQueue``: from the return of its ``get`` to its
next ``get`` it works for that chunk's room.
"""

import threading

from inflightd_hook.sglang import engine
from inflightd_hook.sglang.queue import say

_here = threading.local()


class Chunk:
    """What a thread is working on."""

    __slots__ = ("room", "seq", "served", "nbytes", "handles", "marks")

    def __init__(self, room, seq, nbytes):
        self.room, self.seq, self.nbytes = room, seq, nbytes
        self.served = False
        """Whether its thread is seen at work for its room as one of the queue."""
        self.handles = set()
        self.marks = []
        """Marks made before the room was known to have entered the queue."""

    def take_bytes(self):
        """The chunk's bytes, once: the first of its transfers stands for all of them."""
        nbytes, self.nbytes = self.nbytes, 0
        return nbytes


class Shards:
    """The threads that transfer, of one worker."""

    def __init__(self, worker, queue, manager):
        self._worker = worker
        self._queue = queue
        self._manager = manager
        self.by_chunk = False
        """Its transfer calls are not seen: a chunk counts as one, from its taking to its end."""
        self._open = {}
        """By id of a NIXL handle that is under way: its chunk and bytes."""

    def queued(self, item):
        """A chunk is queued. One whose room has not entered comes before what enters from now on."""
        room = getattr(item, "room", None)
        if room is not None:
            # A chunk may be queued again, when its room has entered meanwhile.
            entered = room in self._queue.seqs
            item._inflightd_after = None if entered else self._queue.last

    def taken(self, item, waits=False):
        """This thread has taken a chunk. Gives True where that is not to be begun now.

        waits: whether a chunk can wait at all.
        """
        room = getattr(item, "room", None)
        if room is None:
            return False
        pages = getattr(item, "prefill_kv_indices", None)
        pages = 0 if pages is None else len(pages)
        after = getattr(item, "_inflightd_after", None)
        if not self.begin(room, pages * engine.page_bytes(self._manager), after, waits):
            # Its room has entered, or just does: it does not come before it any more.
            item._inflightd_after = None
            return True
        if self.by_chunk:
            chunk = _here.chunk
            self._mark(chunk, "post", chunk.nbytes)
        return False

    def begin(self, room, nbytes, after, waits=False):
        """This thread begins to work for a room. Gives False where it is held, or is just entering
        and may be, if that is waited for.

        after: of work that was queued before its room had entered, what had entered last then.
        """
        chunk = Chunk(room, None, nbytes)
        _here.chunk = chunk
        self._queue.working[threading.get_ident()] = chunk
        if after is not None:
            self._worker.serve_early(after)
        # In this order: what is neither entering nor, read after that, has entered, was not in the
        # table when this thread showed itself. So nobody has held it and then not seen this thread.
        entering = waits and self._queue.entering == room
        if not entering:
            self._adopt(chunk)
        is_held = chunk.seq is not None and not chunk.served
        if not waits or not (entering or is_held):
            return True
        _here.chunk = None
        self._queue.working.pop(threading.get_ident(), None)
        self._worker.serve_end()
        return False

    def begin_here(self, room):
        """The scheduler's own thread begins to send for a room, which it does not serve."""
        chunk = Chunk(room, None, 0)
        _here.chunk = chunk
        chunk.seq = self._queue.seqs.get(room)
        chunk.served = chunk.seq is not None

    def _adopt(self, chunk):
        """Serves the chunk's room, where it has entered and was not served yet. A thread that
        works for a held room, since before that entered, is seen as that, and asks again."""
        if chunk.served:
            return
        if chunk.seq is None:
            chunk.seq = self._queue.seqs.get(chunk.room)
        if chunk.seq is None:
            return
        chunk.served = self._worker.serve(chunk.seq)
        say(self._worker, chunk.seq, chunk.marks)

    def back(self):
        """This thread is done with what it had."""
        chunk = getattr(_here, "chunk", None)
        if chunk is None:
            return
        _here.chunk = None
        self._queue.working.pop(threading.get_ident(), None)
        if self.by_chunk:
            # The scheduler may have seen its end before: then the room has left, and this is late.
            self._mark(chunk, "done", chunk.nbytes, not engine.has_failed(self._manager, chunk.room))
        for handle in chunk.handles:
            _, nbytes = self._open.pop(handle, (None, 0))
            self._mark(chunk, "done", nbytes, False)
        if chunk.seq is None and chunk.marks:
            self._queue.keep_early(chunk.room, chunk.marks)
        self._worker.serve_end()

    def pause(self):
        """This thread was working for a room without serving it, and its transfers go on."""
        _here.chunk = None

    def _mark(self, chunk, mark, *arguments):
        if chunk.seq is not None:
            getattr(self._worker, mark)(chunk.seq, *arguments)
            return
        chunk.marks.append((mark, *arguments))
        seq = self._queue.seqs.get(chunk.room)
        if seq is not None:
            say(self._worker, seq, chunk.marks)

    def posting(self, handle):
        """A NIXL transfer is about to be posted by this thread."""
        chunk = getattr(_here, "chunk", None)
        if chunk is None:
            return
        nbytes = chunk.take_bytes()
        chunk.handles.add(id(handle))
        self._open[id(handle)] = (chunk, nbytes)
        self._mark(chunk, "post", nbytes)

    def polled(self, handle, state):
        """A NIXL transfer's state was read; None where that, or the post, raised."""
        if state == "PROC":
            chunk = getattr(_here, "chunk", None)
            if chunk is not None:
                self._adopt(chunk)
            return
        chunk, nbytes = self._open.pop(id(handle), (None, 0))
        if chunk is None:
            return
        chunk.handles.discard(id(handle))
        self._mark(chunk, "done", nbytes, state == "DONE")

    def calling(self, nbytes):
        """A transfer call of that many bytes begins on this thread. Gives its chunk, or None."""
        chunk = getattr(_here, "chunk", None)
        if chunk is not None:
            self._adopt(chunk)
            self._mark(chunk, "post", nbytes)
        return chunk

    def called(self, chunk, nbytes, ok):
        """The transfer call ended."""
        if chunk is not None:
            self._adopt(chunk)
            # What an engine's status compares to may be a bool of its own kind.
            self._mark(chunk, "done", nbytes, bool(ok))
