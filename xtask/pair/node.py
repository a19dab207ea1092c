"""One end of the pair: a NIXL agent on UCX over loopback TCP and its registered memory."""

import ctypes
import logging
import os

# With UCX's default transports a frozen peer on the same host does not stall a
# write (process_vm_writev needs no peer), so the transport is fixed before UCX loads.
# The runner states others for the cases that are about that, or about another network.
os.environ.setdefault("UCX_TLS", "tcp,self")
os.environ.setdefault("UCX_NET_DEVICES", "lo")
os.environ.setdefault("UCX_LOG_LEVEL", "error")
os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")

import numpy  # noqa: E402
from nixl_cu12._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t  # noqa: E402

logging.getLogger("nixl").setLevel(logging.ERROR)

PERIOD = 251
"""Length of the byte pattern; prime, so no page or chunk size hides a shifted write."""
REUSED = 255
"""What memory holds that is somebody else's again: no byte of the pattern."""


class Node:
    """A NIXL agent with `size` bytes of registered CPU memory. Without a thread for progress it makes
    some only where it is asked for notifications."""

    def __init__(self, name, size, filled, thread=True):
        self.name = name
        self.size = size
        config = nixl_agent_config(
            enable_prog_thread=thread,
            backends=["UCX"],
            # Several worker threads call into one agent.
            sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT,
        )
        self.agent = nixl_agent(name, config)
        self.memory = pattern(0, size) if filled else numpy.zeros(size, dtype=numpy.uint8)
        self.address = self.memory.ctypes.data
        self.agent.register_memory([(self.address, size, 0, "")], "DRAM")

    def reuse(self, offset, size):
        """What was a room's is the next one's at once."""
        self.memory[offset : offset + size] = REUSED

    def metadata(self):
        """The opaque bytes a remote agent needs to reach this one."""
        return self.agent.get_agent_metadata()


def pattern(offset, size):
    """The `size` bytes that belong at `offset`: never zero, so a cleared byte is told apart."""
    memory = numpy.empty(size, dtype=numpy.uint8)
    period = min(PERIOD, size)
    memory[:period] = numpy.arange(offset, offset + period) % PERIOD + 1
    done = period
    while done < size:
        # A whole number of periods, so that the copy continues the pattern.
        take = min(done, size - done)
        memory[done : done + take] = memory[:take]
        done += take
    return memory


def open_hook(role, name, bare):
    """The worker's inflightd hook, or a silent stand-in for runs that measure the bare pair."""
    if bare:
        return Silent()
    from inflightd_hook import open_worker

    return open_worker(role, "demo", "1", ranks={"tp": (0, 1)}, identities=[("nixl_agent", name)])


def spoil_table():
    """State an ABI version that no agent knows in this process's table, which the agent then
    cannot read, as with a hook that is newer than the agent."""
    abi_version_word = 1
    with open("/proc/self/maps") as maps:
        (line,) = [line for line in maps if "/memfd:inflight" in line]
    start = int(line.split("-")[0], 16)
    ctypes.c_uint64.from_address(start + 8 * abi_version_word).value = 999


class Unmarked:
    """The hook of an engine that marks its queue and not its transfer calls: those show by the
    transfer library's probes only."""

    def __init__(self, hook):
        self._hook = hook

    def __getattr__(self, name):
        return getattr(self._hook, name)

    def post(self, seq, nbytes):
        pass

    def done(self, seq, nbytes, ok):
        pass


class Silent:
    """The hook's calls, doing nothing: the baseline that the hook's cost is measured against."""

    def __init__(self):
        self._seq = 0

    def append(self, room, rid, peers, expected_bytes=0, traceparent=None):
        self._seq += 1
        return self._seq

    def serve(self, seq):
        return True

    def serve_end(self):
        pass

    def post(self, seq, nbytes):
        pass

    def done(self, seq, nbytes, ok):
        pass

    def phase(self, seq, name):
        pass

    def remove(self, seq, outcome):
        pass

    def beat(self):
        pass

    def gauge(self, name, value):
        pass

    def command(self, seq):
        return "open"
