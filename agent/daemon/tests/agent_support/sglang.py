"""SGLang's load snapshot, written as its scheduler writes it, without any of its code.

    sglang.py FILE write FORM RANKS RANK INFLIGHT     one snapshot, then the end
    sglang.py FILE run                                a scheduler: publishes every 50 ms

`run` takes `inflight N`, `silent` (publishes no more), `large` (maps as much as an engine does),
`hook` (opens the hook's table) and `quit` on standard input.
"""

import ctypes
import mmap
import os
import selectors
import struct
import sys
import time

SLOT = 16 * 1024
HEADER = struct.Struct("<4sHHI")


def pack(value):
    """MessagePack, the forms that a snapshot needs."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 | len(text)]) if len(text) < 32 else b"\xd9" + bytes([len(text)])) + text
    if isinstance(value, (list, tuple)):
        assert len(value) < 16
        return bytes([0x90 | len(value)]) + b"".join(map(pack, value))
    assert len(value) < 65536
    return b"\xde" + struct.pack(">H", len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())


def snapshot(form, rank, inflight):
    core = {
        "timestamp": time.time(),
        "dp_rank": rank,
        "num_running_reqs": 2,
        "num_used_tokens": 4096,
        "token_usage": 0.25,
        "has_queues": 1,
        "queue_waiting": 5,
    }
    if form == "flat":
        own = {"has_disaggregation": 1, "disagg_mode": 1, "prefill_bootstrap_queue_reqs": 4}
        own |= {"kv_transfer_speed_gb_s": 1.5}
        # SGLang leaves out what has its default.
        own |= {"prefill_inflight_queue_reqs": inflight} if inflight else {}
    elif form == "array":
        own = {"disaggregation": ["prefill", 4, inflight, 0, 0, 0, 1.5, 20.0]}
    elif form == "decode":
        own = {"has_disaggregation": 1, "disagg_mode": 2, "decode_transfer_queue_reqs": inflight,
               "decode_prealloc_queue_reqs": 9}
    elif form == "mixed":
        own = {"memory_weight_gb": 70.5}
    elif form == "negative":
        own = {"has_disaggregation": 1, "prefill_inflight_queue_reqs": -1}
    elif form == "deep":
        nest = 0
        for _ in range(200):
            nest = [nest]
        own = {"nest": nest}
    else:
        sys.exit(f"unknown form {form}")
    return pack({key: value for key, value in (core | own).items() if value or key == "nest"})


class Writer:
    def __init__(self, path, ranks, rank):
        self.rank = rank
        file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        size = HEADER.size + ranks * SLOT
        os.ftruncate(file, size)
        self.memory = mmap.mmap(file, size, access=mmap.ACCESS_WRITE)
        HEADER.pack_into(self.memory, 0, b"SLNS", 2, ranks, SLOT)

    def write(self, payload):
        at = HEADER.size + self.rank * SLOT
        self.memory[at : at + 4] = bytes(4)
        self.memory[at + 4 : at + 4 + len(payload)] = payload
        self.memory[at + 4 + len(payload) : at + SLOT] = bytes(SLOT - 4 - len(payload))
        self.memory[at : at + 4] = struct.pack("<I", len(payload))


def grow(pages=40_000):
    """So many mappings: what a page may do changes with each, so the kernel joins none."""
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect, size = ctypes.CDLL(None).mprotect, ctypes.c_size_t(mmap.PAGESIZE)
    for page in range(0, pages, 2):
        protect(ctypes.c_void_p(start + page * mmap.PAGESIZE), size, mmap.PROT_READ)
    return memory


def run(path):
    kept = []
    writer = Writer(path, 1, 0)
    inflight, publishes = 0, True
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin, selectors.EVENT_READ)
    writer.write(snapshot("flat", 0, inflight))
    print("@ready", flush=True)
    while True:
        if waiting.select(0.05):
            word, *rest = (sys.stdin.readline() or "quit").split()
            if word == "quit":
                return
            if word == "inflight":
                inflight = int(rest[0])
            if word == "large":
                kept.append(grow())
            elif word == "hook":
                from inflightd_hook import open_worker

                kept.append(open_worker("prefill", "sglang", "0"))
            else:
                publishes = word != "silent"
            print("@done", flush=True)
        if publishes:
            writer.write(snapshot("flat", 0, inflight))


if __name__ == "__main__":
    path, what, *rest = sys.argv[1:]
    if what == "run":
        run(path)
        os.unlink(path)
    else:
        form, ranks, rank, inflight = rest[0], *map(int, rest[1:])
        Writer(path, ranks, rank).write(snapshot(form, rank, inflight))
