"""The transfer side of the prefill: worker threads that take chunks and write them.

Shaped as SGLang's: each shard has one queue and one thread, and the thread stays with a
chunk until its transfer has ended. A chunk that never ends holds up its whole shard.
"""

import queue
import threading
import time

from lines import say

POLL = 0.001
HELD = 0.05


class ThreadDies(BaseException):
    """What no handler of the worker thread catches."""


class Shard:
    """One queue of chunks and the thread that serves it."""

    def __init__(self, index, node, notify):
        self.index = index
        self.node = node
        self.notify = notify
        self.chunks = queue.SimpleQueue()
        name = f"transfer-{index}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            while True:
                self._next(*self.chunks.get())
        except ThreadDies:
            # The thread is gone, and nobody has said that it no longer serves its room.
            return

    def _next(self, room, index):
        if not room.hook.serve(room.seq):
            # Held: the chunk is set aside, the shard goes on.
            threading.Timer(HELD, self.chunks.put, [(room, index)]).start()
            return
        try:
            self._serve(room, index)
        except Exception as error:  # noqa: BLE001 - the thread must outlive any transfer
            self._failed(room, index, error)
        room.hook.serve_end()

    def _serve(self, room, index):
        if room.status != "transferring":
            return
        if room.fault == "thread_dies" and index == 1:
            say("died", room=room.room, thread=threading.get_native_id())
            raise ThreadDies
        offset, size = room.chunk(index)
        if room.pace:
            time.sleep(room.pace)
        handle = room.prepared.pop(0) if room.prepared else self.handle(room, index)
        room.hook.post(room.seq, size)
        # The handle is what an agent without the hook knows the transfer by.
        say("posting", room=room.room, handle=handle._handle, chunk=index)
        state = self.node.agent.transfer(handle)
        if room.fault == "never_read":
            # Kept, so that no destructor releases the handle.
            room.kept.append(handle)
            return
        self._await(room, handle, state)
        room.hook.done(room.seq, size, True)
        room.chunk_done()

    def handle(self, room, index):
        """A WRITE of one chunk, one descriptor per page, as KV pages are sent."""
        offset, size = room.chunk(index)
        local, remote = [], []
        for at in range(offset, offset + size, room.page):
            length = min(room.page, offset + size - at)
            local.append((self.node.address + at, length, 0))
            remote.append((room.peer.address + at, length, 0))
        agent = self.node.agent
        return agent.initialize_xfer(
            "WRITE",
            agent.get_xfer_descs(local, "DRAM"),
            agent.get_xfer_descs(remote, "DRAM"),
            room.peer.name,
            # Here, as SGLang up to 0.5.22 gives it, and not at the post.
            room.notice(index) if self.notify else b"",
        )

    def _await(self, room, handle, state):
        agent = self.node.agent
        while state != "DONE":
            if room.given_up:
                agent.release_xfer_handle(handle)
                room.released.set()
                raise RuntimeError("given up")
            if state == "ERR":
                raise RuntimeError("NIXL reports the transfer as failed")
            time.sleep(POLL)
            state = agent.check_xfer_state(handle)
        agent.release_xfer_handle(handle)

    def _failed(self, room, index, error):
        say("transfer_error", room=room.room, chunk=index, error=f"{type(error).__name__}: {error}")
        if room.fault == "drop_status":
            # The bug this case stands for: the worker knows, the scheduler is never told.
            return
        _, size = room.chunk(index)
        room.hook.done(room.seq, size, False)
        room.status = "failed"
