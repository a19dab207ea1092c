"""The posting side of `cargo xtask bench transfers`: transfers of N descriptors, one by one.

Commands and events are JSON lines, as in the pair's scripts, whose decode is the far end.
"""

import argparse
import base64
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "pair"))

from lines import commands, die_with_runner, say, serve  # noqa: E402
from node import Node, open_hook  # noqa: E402


class Poster:
    """Posts transfers through the hook and measures the CPU that they take."""

    def __init__(self, name, size):
        self.node = Node(name, size, filled=True)
        self.hook = open_hook("prefill", name, False)
        self.peer = None
        say("ready", name=name, pid=os.getpid(), size=size)

    def peer_is(self, name, metadata, address):
        """Load a decode's metadata."""
        self.node.agent.add_remote_agent(base64.b64decode(metadata))
        self.peer = (name, address)
        say("peered", name=name)

    def run(self, transfers, descriptors, page):
        """Make transfers one after another; say the process's CPU time for each, in ns."""
        name, address = self.peer
        rows = [(i * page, page) for i in range(descriptors)]
        local = [(self.node.address + offset, size, 0) for offset, size in rows]
        remote = [(address + offset, size, 0) for offset, size in rows]
        agent = self.node.agent
        descs = agent.get_xfer_descs(local, "DRAM"), agent.get_xfer_descs(remote, "DRAM")
        begun, posting = time.process_time_ns(), 0
        for turn in range(transfers):
            room = self.hook.append(
                turn, f"rid-{turn}", peers=[("nixl_agent", name)], expected_bytes=descriptors * page
            )
            self.hook.serve(room)
            before = time.thread_time_ns()
            handle = agent.initialize_xfer("WRITE", *descs, name)
            self.hook.post(room, descriptors * page)
            state = agent.transfer(handle)
            posting += time.thread_time_ns() - before
            while state == "PROC":
                time.sleep(0.0005)
                state = agent.check_xfer_state(handle)
            agent.release_xfer_handle(handle)
            self.hook.done(room, descriptors * page, state == "DONE")
            self.hook.serve_end()
            self.hook.remove(room, "success" if state == "DONE" else "failed")
            self.hook.beat()
        cpu = time.process_time_ns() - begun
        say("ran", transfers=transfers, cpu=cpu / transfers, posting=posting / transfers)


def main():
    die_with_runner()
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--memory", type=int, default=64 << 20, help="bytes")
    args = parser.parse_args()
    poster = Poster(args.name, args.memory)
    handlers = {"peer": poster.peer_is, "run": poster.run}
    for command in commands():
        serve(handlers, command)
    # NIXL's destructors wait for peers.
    os._exit(0)


if __name__ == "__main__":
    main()
