"""The prefill side: a small PD scheduler that keeps an inflight queue through the hook.

Started by the case runner; one JSON command a line on stdin, one event a line on stdout.
The main thread is the scheduler: it appends, polls every room's status, beats, and
removes what has ended. Transfers run on the shard threads of `transfer.py`.
"""

import argparse
import base64
import functools
import os
import queue
import time

from handshake import ask
from lines import commands, die_with_runner, say, serve
from node import Node, Unmarked, open_hook, spoil_table
from rooms import FAULTS, Filler, Peer, Room, burst, in_background
from transfer import Shard

POLL = 0.005


class Prefill:
    """The scheduler and the commands of the prefill side."""

    def __init__(self, args):
        self.node = Node(args.name, args.memory, filled=True)
        self.hooks = [open_hook("prefill", args.name, args.bare) for _ in range(args.workers)]
        # Said by who does what "Failing a room" in inflight.h asks: `carry_out` and `polled` here,
        # the gate in `transfer.py`.
        for hook in self.hooks:
            hook.gauge("commands", 1)
        if args.unmarked:
            self.hooks = [Unmarked(hook) for hook in self.hooks]
        if args.spoil_table:
            spoil_table()
        self.peers = {}
        self.inflight = []
        self.coming = []
        self.answered = queue.SimpleQueue()
        self.fillers = []
        self.shards = [Shard(i, self.node, args.notify) for i in range(args.shards)]
        say("ready", name=args.name, pid=os.getpid(), size=args.memory)

    def peer(self, name, metadata, address, size, door=None, renew=False):
        """Load a decode's metadata; `renew` forgets what was known under its name before."""
        if renew:
            self.node.agent.remove_remote_agent(name)
        self.node.agent.add_remote_agent(base64.b64decode(metadata))
        self.peers[name] = Peer(name, address, size, door)
        say("peered", name=name)

    def append(
        self,
        room,
        to,
        bytes,
        chunk=0,
        page=65536,
        offset=0,
        shard=0,
        pace=0.0,
        fault=None,
        prefill=0.0,
        handshake=False,
    ):
        """A request enters the inflight queue; `chunk` 0 means one chunk, `pace` is seconds
        before each chunk, `prefill` seconds of computing from its coming to its append. With
        `handshake` it is parked there until its peer has answered."""
        peer = self.peers[to]
        if fault not in FAULTS:
            raise ValueError(f"unknown fault {fault!r}")
        if offset + bytes > min(peer.size, self.node.size):
            raise ValueError(f"room {room} does not fit: {offset} + {bytes} bytes")
        entry = Room(room, peer, bytes, chunk or bytes, page, offset, pace, fault, self.hooks[0])
        entry.handshake = handshake
        shard = self.shards[shard % len(self.shards)]
        if prefill:
            # Made while the prompt is computed, as an engine does that knows its pages early.
            entry.prepared = [shard.handle(entry, i) for i in range(entry.chunks())]
        self.coming.append((time.monotonic() + prefill, entry, shard))
        self.enter()

    def enter(self):
        """Append what has been computed."""
        now = time.monotonic()
        for due in [due for due in self.coming if due[0] <= now]:
            self.coming.remove(due)
            self._enter(*due[1:])

    def _enter(self, entry, shard):
        for old in [e for e in self.inflight if e.room == entry.room]:
            # The hook lets an open room of the same number leave.
            old.status = "superseded"
            self.leave(old)
        entry.seq = entry.hook.append(
            entry.room,
            f"rid-{entry.room}",
            peers=[("nixl_agent", entry.peer.name)],
            expected_bytes=entry.size,
        )
        self.inflight.append(entry)
        say("appended", room=entry.room, seq=entry.seq, bytes=entry.size)
        if entry.fault == "parked":
            entry.hook.phase(entry.seq, "parked")
        elif entry.handshake:
            entry.hook.phase(entry.seq, "parked")
            answered = functools.partial(self.answered.put, (entry, shard))
            in_background(ask, entry.peer.door, entry.room, answered)
        elif entry.fault != "never_post":
            self._send(entry, shard)

    def _send(self, entry, shard):
        for index in range(entry.chunks()):
            shard.chunks.put((entry, index))

    def go_on(self):
        """Send what was parked and has its answer."""
        while not self.answered.empty():
            entry, shard = self.answered.get()
            if entry in self.inflight:
                entry.hook.phase(entry.seq, "peers_ready")
                self._send(entry, shard)

    def abort(self, room):
        """The client gave up: the room leaves the queue as aborted."""
        for entry in self.inflight:
            if entry.room == room:
                entry.status = "aborted"

    def abandon(self, room):
        """What no engine may do: the handle of a transfer under way is released, and the room's
        memory is another's at once."""
        entry = next(e for e in self.inflight if e.room == room)
        entry.given_up = True
        entry.released.wait()
        self.node.reuse(entry.offset, entry.size)
        say("abandoned", room=room)

    def carry_out(self):
        """As a poll begins: what the agent wants failed. What it was is another's at once."""
        for entry in self.inflight:
            if entry.hook.command(entry.seq) == "open":
                continue
            fail = entry.hook.carry_out(entry.seq)
            if fail is not None and entry.status == "transferring":
                entry.status = "failed"
                self.node.reuse(entry.offset, entry.size)
                say("forced", room=entry.room, why=fail.reason)

    def polled(self, begun):
        """After a poll: holds of what it left that were over when it began."""
        for entry in self.inflight:
            if entry.hook.command(entry.seq) != "open":
                entry.hook.polled(entry.seq, begun)

    def fill(self, first, rooms, keep, to, worker=0):
        """Keep so many rooms open on paper, none for longer than `keep` seconds."""
        self.fillers.append(Filler(self.hooks[worker], to, first, rooms, keep))
        say("filled")

    def burst(self, room, marks):
        """So many queue marks on an open room, all at once."""
        entry = next(e for e in self.inflight if e.room == room)
        burst(entry.hook, entry.seq, marks)
        say("burst", room=room)

    def forward(self, seconds):
        """One long forward pass: the scheduler neither polls its queue nor beats."""
        say("forward")
        time.sleep(seconds)

    def leave(self, entry):
        """A room is no longer in the queue."""
        self.inflight.remove(entry)
        say("removed", room=entry.room, seq=entry.seq, outcome=entry.status)

    def poll(self):
        """One pass over the inflight queue, as the scheduler makes between two batches."""
        begun = time.monotonic_ns()
        self.carry_out()
        for hook in self.hooks:
            hook.beat()
        self.enter()
        self.go_on()
        for entry in [e for e in self.inflight if e.status != "transferring"]:
            entry.hook.remove(entry.seq, entry.status)
            self.leave(entry)
        self.polled(begun)
        for filler in self.fillers:
            filler.turn(time.monotonic())


def arguments():
    """What the case runner asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--memory", type=int, default=256 << 20, help="bytes")
    parser.add_argument("--shards", type=int, default=5, help="transfer worker threads")
    parser.add_argument("--workers", type=int, default=1, help="queues with a table each")
    parser.add_argument("--bare", action="store_true", help="run without the hook")
    parser.add_argument("--unmarked", action="store_true", help="mark no transfer calls")
    parser.add_argument("--notify", action="store_true", help="a NIXL notification a chunk")
    parser.add_argument(
        "--spoil-table", action="store_true", help="state another ABI version in the table"
    )
    return parser.parse_args()


def main():
    die_with_runner()
    prefill = Prefill(arguments())
    names = ["peer", "append", "abort", "abandon", "fill", "burst", "forward"]
    handlers = {name: getattr(prefill, name) for name in names}
    inbox = queue.SimpleQueue()
    in_background(read_commands, inbox)
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
