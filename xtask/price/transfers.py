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

    def stick(self, name, metadata, address, descriptors=16, page=16384):
        """Post a transfer to a decode that makes no progress, and leave it."""
        self.node.agent.add_remote_agent(base64.b64decode(metadata))
        rows = [(i * page, page) for i in range(descriptors)]
        local = [(self.node.address + offset, size, 0) for offset, size in rows]
        remote = [(address + offset, size, 0) for offset, size in rows]
        agent = self.node.agent
        descs = agent.get_xfer_descs(local, "DRAM"), agent.get_xfer_descs(remote, "DRAM")
        room = self.hook.append(1 << 40, "stuck", peers=[("nixl_agent", name)])
        self.hook.serve(room)
        self.stuck = agent.initialize_xfer("WRITE", *descs, name)
        self.hook.post(room, descriptors * page)
        say("stuck", state=agent.transfer(self.stuck))
        self.hook.serve_end()

    def run(self, transfers, descriptors, page):
        """Make transfers one after another; say the CPU time of each, in ns.

        `call`: this thread, from making the request until its post has returned. `thread`: this
        thread from the room's entry to its removal, without the wait for the completion, whose
        polls are as many as the wire and the machine make them. `process`: all threads, that wait
        and the library's own polling meanwhile included.
        """
        name, address = self.peer
        rows = [(i * page, page) for i in range(descriptors)]
        local = [(self.node.address + offset, size, 0) for offset, size in rows]
        remote = [(address + offset, size, 0) for offset, size in rows]
        agent, now = self.node.agent, time.thread_time_ns
        descs = agent.get_xfer_descs(local, "DRAM"), agent.get_xfer_descs(remote, "DRAM")
        begun, call, thread = time.process_time_ns(), 0, 0
        for turn in range(transfers):
            entered = now()
            room = self.hook.append(
                turn, f"rid-{turn}", peers=[("nixl_agent", name)], expected_bytes=descriptors * page
            )
            self.hook.serve(room)
            made = now()
            handle = agent.initialize_xfer("WRITE", *descs, name)
            self.hook.post(room, descriptors * page)
            state = agent.transfer(handle)
            posted = now()
            while state == "PROC":
                time.sleep(0.0005)
                state = agent.check_xfer_state(handle)
            arrived = now()
            agent.release_xfer_handle(handle)
            self.hook.done(room, descriptors * page, state == "DONE")
            self.hook.serve_end()
            self.hook.remove(room, "success" if state == "DONE" else "failed")
            self.hook.beat()
            call += posted - made
            thread += posted - entered + now() - arrived
        process = time.process_time_ns() - begun
        costs = {"call": call, "thread": thread, "process": process}
        say("ran", transfers=transfers, **{what: ns / transfers for what, ns in costs.items()})


def main():
    die_with_runner()
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--memory", type=int, default=64 << 20, help="bytes")
    args = parser.parse_args()
    poster = Poster(args.name, args.memory)
    handlers = {"peer": poster.peer_is, "run": poster.run, "stick": poster.stick}
    for command in commands():
        serve(handlers, command)
    # NIXL's destructors wait for peers.
    os._exit(0)


if __name__ == "__main__":
    main()
