"""One end of a Mooncake pair for the probe tests: one JSON command a line in, one answer out."""

import ctypes
import os
import sys

os.environ["MC_TRANSFER_TIMEOUT"] = "3600"
os.environ.setdefault("MC_LOG_LEVEL", "ERROR")

import numpy  # noqa: E402
from mooncake.engine import TransferEngine  # noqa: E402

from commands import serve  # noqa: E402

HOST = "127.0.0.1"


class Peer:
    def __init__(self, size):
        self.engine = TransferEngine()
        assert self.engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "") == 0
        self.memory = numpy.ones(size, dtype=numpy.uint8)
        self.address = self.memory.ctypes.data
        assert self.engine.register_memory(self.address, size) == 0

    def describe(self):
        return {"address": self.address, "metadata": f"{HOST}:{self.engine.get_rpc_port()}"}

    def connect(self, metadata, address):
        self.remote, self.remote_address = metadata, address
        return {"remote": self.remote}

    def lists(self, descs, size):
        """`descs` pieces that do not touch, `size` bytes each."""
        pick = lambda base: [base + i * 2 * size for i in range(descs)]  # noqa: E731
        return self.remote, pick(self.address), pick(self.remote_address), [size] * descs

    def write(self, descs, size):
        """As SGLang does it: returns when all is there."""
        return {"status": self.engine.batch_transfer_sync_write(*self.lists(descs, size))}

    def submit(self, descs, size):
        """A batch that stays until `finish` asks for it."""
        self.batch = self.engine.batch_transfer_async_write(*self.lists(descs, size))
        return {"batch": str(self.batch)}

    def finish(self):
        """Waits for the batch and frees it."""
        return {"status": self.engine.get_batch_transfer_status([self.batch])}

    def tid(self):
        return {"tid": ctypes.CDLL(None).gettid()}


if __name__ == "__main__":
    serve(Peer(int(sys.argv[2])))
