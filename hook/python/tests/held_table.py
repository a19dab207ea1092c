"""What the agent writes into a worker's table, written by a test: `ebpf/abi/src/table/command.rs`."""

import contextlib
import mmap
import os
import struct
import sys
import time

from test_hook import ENTRIES, ENTRY_WORDS, GAUGES, HEADER_WORDS, THREAD_WORDS, THREADS

ASKED, COMMANDS = 208, GAUGES + 10
COMMAND, TOLD, REASON = 8, 17, 18
OPEN, HELD, COMMITTED, FAILED = range(4)
UNTIL = (1 << 24) - 1


def moment(ahead_ms):
    """So many milliseconds from now, as a command word has it."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000 + ahead_ms & UNTIL


@contextlib.contextmanager
def alone():
    """Nobody else's turn, as far as Python gives them: a test has no compare-and-swap."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        # Who has begun to wait for its turn meanwhile would wait for the long interval.
        time.sleep(0)


class Agent:
    """The agent's side of a `test_hook.Table`."""

    def __init__(self, table):
        file = os.open(f"/proc/self/map_files/{table.range}", os.O_RDWR)
        self._words = mmap.mmap(file, 0)
        os.close(file)

    def get(self, at):
        return struct.unpack_from("<Q", self._words, at * 8)[0]

    def set(self, at, value):
        struct.pack_into("<Q", self._words, at * 8, value)

    def _at(self, seq, word):
        entries = HEADER_WORDS + THREADS * THREAD_WORDS + ENTRIES
        return entries + (seq & 0x3FFF) * ENTRY_WORDS + word

    def command(self, seq):
        """State, threads at work, until."""
        word = self.get(self._at(seq, COMMAND))
        return word & 3, word >> 2 & 0x3FFF, word >> 40

    def _turn(self, seq, state, until=None):
        at = self._at(seq, COMMAND)
        with alone():
            word = self.get(at) & ~3 | state
            if until is not None:
                word = word & (1 << 40) - 1 | until << 40
            self.set(at, word)

    def hold(self, seq, ahead_ms=2000, dies=False):
        """Nobody is to begin; ends after that many milliseconds and a poll.

        dies: before it has told the worker.
        """
        assert self.command(seq)[0] == OPEN
        self._turn(seq, HELD, moment(ahead_ms))
        if dies:
            return
        with alone():
            self.set(ASKED, self.get(ASKED) + 1)

    def release(self, seq):
        assert self.command(seq)[0] == HELD
        self._turn(seq, OPEN)

    def commit(self, seq, reason="never_posted", dwell_ms=61_250, tell=True):
        state, active, _ = self.command(seq)
        assert (state, active) == (HELD, 0), (state, active)
        self.set(self._at(seq, TOLD), dwell_ms << 1 | tell)
        text = reason.encode()
        self.set(self._at(seq, REASON), len(text))
        kept = text[:40].ljust(40, b"\0")
        for index in range(5):
            (word,) = struct.unpack_from("<Q", kept, index * 8)
            self.set(self._at(seq, REASON + 1 + index), word)
        self._turn(seq, COMMITTED)

    def stated(self):
        """What the worker says as `commands`; None where it does not."""
        return self.get(COMMANDS) - 1 if self.get(COMMANDS) else None

    def forget(self):
        """As a worker that has said nothing of commands: tests share one."""
        self.set(COMMANDS, 0)
