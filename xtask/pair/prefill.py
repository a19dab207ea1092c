"""The prefill side: a small PD scheduler that keeps an inflight queue through the hook.

Started by the case runner; one JSON command a line on stdin, one event a line on stdout.
The main thread is the scheduler: it appends, polls every room's status, beats, and
removes what has ended. Transfers run on the shard threads of `transfer.py`.
"""

import argparse
import base64
import math
import os
import queue
import threading

from lines import commands, die_with_runner, say, serve
from node import Node, open_hook
from transfer import Shard

FAULTS = {None, "never_post", "drop_status", "never_read"}
POLL = 0.005


class Peer:
    """A decode this prefill can write to."""

    def __init__(self, name, address, size):
        self.name = name
        self.address = address
        self.size = size


class Room:
    """One request's transfer, from append to removal."""

    def __init__(self, room, peer, size, chunk, page, offset, pace, fault):
        self.room = room
        self.peer = peer
        self.size = size
        self.page = page
        self.offset = offset
        self.pace = pace
        self.fault = fault
        self.kept = []
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

    def chunk_done(self):
        """One shard serves all chunks of a room, so nothing else counts here."""
        self._left -= 1
        if self._left == 0:
            self.status = "success"


class Prefill:
    """The scheduler and the commands of the prefill side."""

    def __init__(self, name, size, shards, bare):
        self.node = Node(name, size, filled=True)
        self.hook = open_hook("prefill", name, bare)
        self.peers = {}
        self.inflight = []
        self.shards = [Shard(i, self.node, self.hook) for i in range(shards)]
        say("ready", name=name, pid=os.getpid(), size=size)

    def peer(self, name, metadata, address, size):
        """Load a decode's metadata."""
        self.node.agent.add_remote_agent(base64.b64decode(metadata))
        self.peers[name] = Peer(name, address, size)
        say("peered", name=name)

    def append(self, room, to, bytes, chunk=0, page=65536, offset=0, shard=0, pace=0.0, fault=None):
        """A request enters the inflight queue; `chunk` 0 means one chunk, `pace` is seconds
        before each chunk."""
        peer = self.peers[to]
        if fault not in FAULTS:
            raise ValueError(f"unknown fault {fault!r}")
        if offset + bytes > min(peer.size, self.node.size):
            raise ValueError(f"room {room} does not fit: {offset} + {bytes} bytes")
        entry = Room(room, peer, bytes, chunk or bytes, page, offset, pace, fault)
        entry.seq = self.hook.append(
            room, f"rid-{room}", peers=[("nixl_agent", to)], expected_bytes=bytes
        )
        self.inflight.append(entry)
        say("appended", room=room, seq=entry.seq, bytes=bytes)
        if fault != "never_post":
            queue_of = self.shards[shard % len(self.shards)].chunks
            for index in range(entry.chunks()):
                queue_of.put((entry, index))

    def abort(self, room):
        """The client gave up: the room leaves the queue as aborted."""
        for entry in self.inflight:
            if entry.room == room:
                entry.status = "aborted"

    def poll(self):
        """One pass over the inflight queue, as the scheduler makes between two batches."""
        self.hook.beat()
        for entry in [e for e in self.inflight if e.status != "transferring"]:
            self.hook.remove(entry.seq, entry.status)
            self.inflight.remove(entry)
            say("removed", room=entry.room, seq=entry.seq, outcome=entry.status)


def main():
    die_with_runner()
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--memory", type=int, default=256 << 20, help="bytes")
    parser.add_argument("--shards", type=int, default=4, help="transfer worker threads")
    parser.add_argument("--bare", action="store_true", help="run without the hook")
    args = parser.parse_args()
    prefill = Prefill(args.name, args.memory, args.shards, args.bare)
    handlers = {"peer": prefill.peer, "append": prefill.append, "abort": prefill.abort}
    inbox = queue.SimpleQueue()
    threading.Thread(target=read_commands, args=(inbox,), daemon=True).start()
    while True:
        try:
            command = inbox.get(timeout=POLL)
        except queue.Empty:
            command = {}
        if command is None:
            # NIXL's destructors wait for peers that may be stopped.
            os._exit(0)
        if command:
            serve(handlers, command)
        prefill.poll()


def read_commands(inbox):
    """Feed commands to the scheduler thread; None at EOF."""
    for command in commands():
        inbox.put(command)
    inbox.put(None)


if __name__ == "__main__":
    main()
