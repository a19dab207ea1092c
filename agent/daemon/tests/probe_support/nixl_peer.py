"""One end of a NIXL pair for the probe tests: one JSON command a line in, one answer out."""

import base64
import ctypes
import importlib
import os
import sys
import time

os.environ["UCX_TLS"] = "tcp,self"
os.environ["UCX_NET_DEVICES"] = "lo"
os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
os.environ.setdefault("NIXL_LOG_LEVEL", "FATAL")

import numpy  # noqa: E402

from commands import serve  # noqa: E402


def load_api():
    """The NIXL API of whichever wheel the environment has."""
    for package in ("nixl_cu12", "nixl_cu13"):
        try:
            return importlib.import_module(package + "._api")
        except ModuleNotFoundError:
            continue
    raise SystemExit("this Python has no NIXL: `cargo xtask setup` installs it")


class Peer:
    def __init__(self, name, size):
        api = load_api()
        config = api.nixl_agent_config(enable_prog_thread=True, backends=["UCX"])
        self.agent = api.nixl_agent(name, config)
        self.memory = numpy.ones(size, dtype=numpy.uint8)
        self.address = self.memory.ctypes.data
        self.agent.register_memory([(self.address, size, 0, "")], "DRAM")
        self.handles = []

    def describe(self):
        metadata = base64.b64encode(self.agent.get_agent_metadata()).decode()
        return {"address": self.address, "metadata": metadata}

    def connect(self, metadata, address):
        name = self.agent.add_remote_agent(base64.b64decode(metadata))
        self.remote = name if isinstance(name, str) else name.decode()
        self.remote_address = address
        return {"remote": self.remote}

    def itself(self):
        """Make this end its own far end."""
        self.remote, self.remote_address = self.agent.name, self.address + self.memory.size // 2
        return {"remote": self.remote}

    def make(self, descs, size, notif, op):
        """A request of `descs` descriptors that do not touch, `size` bytes each."""
        pick = lambda base: [(base + i * 2 * size, size, 0) for i in range(descs)]  # noqa: E731
        local = self.agent.get_xfer_descs(pick(self.address), "DRAM")
        remote = self.agent.get_xfer_descs(pick(self.remote_address), "DRAM")
        return self.agent.initialize_xfer(op, local, remote, self.remote, notif.encode())

    def post(self, descs, size, notif="", op="WRITE"):
        """Post and leave it: the answer has what the post itself returned."""
        handle = self.make(descs, size, notif, op)
        self.handles.append(handle)
        return {"state": self.state(lambda: self.agent.transfer(handle)), "handle": str(handle._handle)}

    def poll(self):
        """The state of the last handle."""
        return {"state": self.state(lambda: self.agent.check_xfer_state(self.handles[-1]))}

    def state(self, ask):
        try:
            return ask()
        except Exception as error:
            return type(error).__name__

    def wait(self, seconds=20):
        """Poll the last handle to its end."""
        end = time.monotonic() + seconds
        while (state := self.poll()["state"]) == "PROC" and time.monotonic() < end:
            time.sleep(0.0005)
        return {"state": state}

    def release(self):
        """Release every handle."""
        count = len(self.handles)
        while self.handles:
            self.handles.pop().release()
        return {"released": count}

    def run(self, count, descs, size):
        """`count` transfers, one after the other, each to its end."""
        at_once = 0
        for _ in range(count):
            at_once += self.post(descs, size)["state"] == "DONE"
            state = self.wait()["state"]
            self.release()
            if state != "DONE":
                return {"failed": state}
        return {"at_once": at_once}

    def cost(self, count, descs, size):
        """CPU time of this thread per post, in nanoseconds: least and median."""
        spent = []
        for _ in range(count):
            handle = self.make(descs, size, "", "WRITE")
            begin = time.thread_time_ns()
            self.agent.transfer(handle)
            spent.append(time.thread_time_ns() - begin)
            self.handles.append(handle)
            self.wait()
            self.release()
        spent.sort()
        return {"least": spent[0], "median": spent[len(spent) // 2]}

    def tid(self):
        return {"tid": ctypes.CDLL(None).gettid()}


if __name__ == "__main__":
    serve(Peer(sys.argv[1], int(sys.argv[2])))
