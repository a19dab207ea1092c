"""Looks on inside a scheduler: rooms' states and what is free, a line for each change.

Reads only, from a thread of its own; the agent under test gets nothing from here. What it sees
is for the runner: when to hit, and pages and slots before and after.
"""

import json
import os
import threading
import time

import idle

PERIOD = 0.005
STATES = ("Failed", "Bootstrapping", "WaitingForInput", "Transferring", "Success")


def install(server, events, wanted):
    """Have the scheduler of this process, once it is built, be looked at. `events` is the
    descriptor of a pipe; a line is shorter than a pipe writes at once. `wanted`: the file that
    asks for what an iteration costs."""
    from sglang.srt.managers.scheduler import Scheduler

    build = Scheduler.__init__

    def built(self, *args, **named):
        build(self, *args, **named)
        watch = Watch(server, events, self)
        idle.watch(self, wanted, watch.say)
        threading.Thread(target=watch.run, daemon=True, name="e2e-watch").start()

    Scheduler.__init__ = built


class Watch:
    """What was last said of one scheduler."""

    def __init__(self, server, events, scheduler):
        self.server = server
        self.events = events
        self.scheduler = scheduler
        self.manager = manager_of(scheduler)
        self.rank = self.manager.attn_tp_rank
        self.rooms = {}
        self.free = None
        # Where it hears from its peers.
        hears = f"tcp://{self.manager.local_ip}:{self.manager.rank_port}"
        self.say("engine", pid=os.getpid(), hears=hears)

    def say(self, event, **fields):
        line = {"event": event, "at": time.monotonic_ns(), "server": self.server}
        line |= {"rank": self.rank, **fields}
        os.write(self.events, (json.dumps(line) + "\n").encode())

    def run(self):
        while True:
            try:
                self.look()
            except RuntimeError:
                pass  # A dictionary has changed while it was copied.
            except Exception as error:
                self.say("refused", why=f"watch: {error!r}")
                return
            time.sleep(PERIOD)

    def look(self):
        free = self.read_free()
        if free != self.free:
            self.free = free
            self.say("free", **free)
        rooms = dict(self.manager.request_status)
        for room in self.rooms.keys() - rooms.keys():
            self.say("room", room=room, state="gone")
        for room, state in rooms.items():
            if self.rooms.get(room) != state:
                self.say("room", room=room, state=STATES[state])
        self.rooms = rooms

    def read_free(self):
        """Pages, evictable ones among them, slots of metadata, and the lengths of the queues."""
        scheduler = self.scheduler
        pages = scheduler.token_to_kv_pool_allocator.available_size()
        return {
            "pages": pages + scheduler.tree_cache.evictable_size(),
            "slots": scheduler.req_to_metadata_buffer_idx_allocator.available_size(),
            "inflight": len(getattr(scheduler, "disagg_prefill_inflight_queue", None) or ()),
        }


def manager_of(scheduler):
    """The KV manager, which either queue of the two sides has."""
    for name in ("disagg_prefill_bootstrap_queue", "disagg_decode_prealloc_queue"):
        queue = getattr(scheduler, name, None)
        if queue is not None:
            return queue.kv_manager
    raise RuntimeError("neither a prefill nor a decode")
