"""The decode side: registered memory that a prefill writes into, and a watch on it.

Started by the case runner; one JSON command a line on stdin, one event a line on stdout.
Faults that must hit in mid transfer are made here, by the process on itself, the moment
it has seen enough bytes land: from outside they would depend on the scheduling of three
processes.
"""

import argparse
import base64
import os
import signal
import threading
import time

import numpy

from handshake import Door
from lines import commands, die_with_runner, say, serve
from node import REUSED, Node, open_hook, pattern

SIGNALS = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}
STRIDE = 4096


class Decode:
    """The commands of the decode side."""

    def __init__(self, name, size, bare, thread):
        self.node = Node(name, size, filled=False, thread=thread)
        self.deaf = False
        self.hook = open_hook("decode", name, bare)
        self.door = Door()
        say(
            "ready",
            name=name,
            pid=os.getpid(),
            size=size,
            address=self.node.address,
            door=self.door.port,
            metadata=base64.b64encode(self.node.metadata()).decode(),
        )

    def clear(self, offset, size):
        """Zero a range, so that what lands in it next can be seen."""
        self.node.memory[offset : offset + size] = 0
        say("cleared", offset=offset, size=size)

    def watch(self, room, offset, size, after, then=None):
        """Report when `after` bytes of a cleared range have landed, and hit this process
        with the signal `then` (`stop`, `kill` or none)."""
        number = SIGNALS[then] if then else None
        args = (room, offset, size, after, number)
        threading.Thread(target=self._watch, args=args, daemon=True).start()
        say("watching", room=room)

    def mute(self):
        """Answer no hand-shake from now on."""
        self.door.mute = True
        say("muted")

    def deafen(self):
        """Ask for no notifications from now on: without a thread for it UCX makes no progress."""
        self.deaf = True
        say("deafened")

    def hear(self):
        """Ask for them again."""
        self.deaf = False
        say("hears")

    def check(self, room, offset, size):
        """Say how many bytes of a range differ from what the prefill writes there."""
        landed = self.node.memory[offset : offset + size]
        wrong = int(numpy.count_nonzero(landed != pattern(offset, size)))
        say("checked", room=room, wrong=wrong)

    def find(self, offset, size):
        """Say how many bytes of a range are of memory that was somebody else's when it was sent, and
        how many have been written at all."""
        landed = self.node.memory[offset : offset + size]
        reused = int(numpy.count_nonzero(landed == REUSED))
        say("found", wrong=reused, bytes=int(numpy.count_nonzero(landed)))

    def _watch(self, room, offset, size, after, number):
        sample = self.node.memory[offset : offset + size : STRIDE]
        while True:
            landed = int(numpy.count_nonzero(sample)) * STRIDE
            if landed >= after:
                break
            time.sleep(0.0005)
        say("landed", room=room, bytes=landed, size=size)
        if number is not None:
            os.kill(os.getpid(), number)


def beat_forever(decode):
    """Keep the heartbeat fresh and drain notifications, as an engine's event loop does."""
    while True:
        decode.hook.beat()
        if not decode.deaf:
            decode.node.agent.get_new_notifs()
        time.sleep(0.01)


def main():
    die_with_runner()
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--memory", type=int, default=256 << 20, help="bytes")
    parser.add_argument("--bare", action="store_true", help="run without the hook")
    parser.add_argument("--polled", action="store_true", help="no thread of NIXL makes progress")
    args = parser.parse_args()
    decode = Decode(args.name, args.memory, args.bare, thread=not args.polled)
    threading.Thread(target=beat_forever, args=(decode,), daemon=True).start()
    names = ["clear", "watch", "check", "find", "mute", "deafen", "hear"]
    handlers = {name: getattr(decode, name) for name in names}
    for command in commands():
        serve(handlers, command)
    # NIXL's destructors wait for peers that may be stopped.
    os._exit(0)


if __name__ == "__main__":
    main()
