"""What the hook costs an iteration of the scheduler: polls with the hook's part and without it.

The two take turns within one process: two processes of the same kind differ by more than the hook
costs. What is measured is the CPU time of the scheduler's own thread, which other work on the
machine does not add to, though what it does to the caches it does to both.

One more call on the stack alone made the same iteration 10 of 200 µs cheaper (measured: CPython
3.11, a wrapper that does nothing): where a stack comes to lie counts for more than the hook does.
So both are measured under stacks of several depths, and by what these differ is the noise.
"""

import os
import threading
import time

POLL = "process_disagg_prefill_inflight_queue"
SLICE_S = 0.2
SETTLE_S = 0.02
"""From a change to the begin of its slice: an iteration in which both had a part is over."""
DEPTHS = range(8)
"""Calls that do nothing, above what is measured."""


def under(depth, call):
    """The call below so many more on the stack."""

    def deeper(*args, **named):
        return call(*args, **named)

    return under(depth - 1, deeper) if depth else call


class Slices:
    """Measures while a file named ``wanted`` is there. Made on the scheduler's own thread, before
    the hook is put on the scheduler."""

    def __init__(self, scheduler, wanted, say):
        self.scheduler, self.wanted, self.say = scheduler, wanted, say
        self.polls = 0
        self.clock = time.pthread_getcpuclockid(threading.get_ident())
        poll = getattr(scheduler, POLL)

        def counted(*args, **named):
            self.polls += 1
            return poll(*args, **named)

        # Under the hook, so that it counts with the hook's part and without.
        self.counted = counted
        setattr(scheduler, POLL, counted)

    def run(self):
        while True:
            while not os.path.exists(self.wanted):
                time.sleep(0.1)
            self.measure()

    def measure(self):
        hooked = getattr(self.scheduler, POLL)
        pairs = [[[0, 0], [0, 0]] for _ in DEPTHS]
        try:
            while os.path.exists(self.wanted):
                for depth, pair in zip(DEPTHS, pairs):
                    for call, sums in zip((self.counted, hooked), pair):
                        sums[:] = map(int.__add__, sums, self.slice(under(depth, call)))
                self.say("slices", pairs=pairs)
        finally:
            setattr(self.scheduler, POLL, hooked)

    def slice(self, call):
        """Polls of a slice in which this is what polls, and nanoseconds."""
        setattr(self.scheduler, POLL, call)
        time.sleep(SETTLE_S)
        before = self.read()
        time.sleep(SLICE_S)
        return map(int.__sub__, self.read(), before)

    def read(self):
        """Polls until now, and nanoseconds."""
        return self.polls, time.clock_gettime_ns(self.clock)


def watch(scheduler, wanted, say):
    """Measures a prefill, whenever it is asked for; a decode has no inflight queue."""
    if hasattr(scheduler, "disagg_prefill_inflight_queue") and hasattr(scheduler, POLL):
        threading.Thread(target=Slices(scheduler, wanted, say).run, daemon=True, name="e2e-idle").start()
