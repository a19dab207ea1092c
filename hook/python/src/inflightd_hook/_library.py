"""libinflight through ctypes: the structures of ``inflight.h`` and the types of its calls."""

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

ROLES = {"prefill": 1, "decode": 2}
PEER_KINDS = {"nixl_agent": 1, "mooncake_session": 2, "endpoint": 3}
PHASES = {
    "parked": 1,
    "peers_ready": 2,
    "transferring": 3,
    "failed": 4,
    "exempt": 5,
    "done_here": 6,
    "prealloc": 7,
}
GAUGES = {
    "kv_free": 1,
    "kv_total": 2,
    "slots_free": 3,
    "slots_total": 4,
    "threads_alive": 5,
    "threads_started": 6,
    "listeners_alive": 7,
    "faults": 8,
    "missing": 9,
    "commands": 10,
}
COMMANDS = ("open", "held", "committed", "carried_out")
"""What the agent asks of a room, by its number."""
COMMANDS_VERSION = 1
"""What a worker says as ``commands`` that does all of "Failing a room"."""
OUTCOMES = {"success": 1, "failed": 2, "aborted": 3, "requeued": 4, "superseded": 5}
RANKS = ("dp", "pp", "tp", "cp")


class Peer(ctypes.Structure):
    _fields_ = [("kind", c_uint32), ("reserved", c_uint32), ("value", c_char_p)]


class Rank(ctypes.Structure):
    _fields_ = [("index", c_uint32), ("size", c_uint32)]


class OpenArgs(ctypes.Structure):
    _fields_ = [
        ("size", c_uint64),
        ("role", c_uint32),
        ("nnodes", c_uint32),
        ("engine", c_char_p),
        ("version", c_char_p),
        *((name, Rank) for name in RANKS),
        ("identities", POINTER(Peer)),
        ("identities_len", c_size_t),
    ]


class Fail(ctypes.Structure):
    _fields_ = [("dwell_ms", c_uint64), ("tell_peers", c_uint32), ("reason", c_char * 44)]


_CALLS = {
    "inflight_open": (c_int, [POINTER(OpenArgs), POINTER(c_void_p), POINTER(c_int)]),
    "inflight_errstr": (c_char_p, [c_int]),
    "inflight_close": (None, [c_void_p]),
    "inflight_append": (
        c_uint64,
        [c_void_p, c_uint64, c_char_p, POINTER(Peer), c_size_t, c_uint64, c_char_p],
    ),
    "inflight_serve": (c_int, [c_void_p, c_uint64]),
    "inflight_serve_early": (None, [c_void_p, c_uint64]),
    "inflight_serve_end": (None, [c_void_p]),
    "inflight_post": (None, [c_void_p, c_uint64, c_uint64]),
    "inflight_done": (None, [c_void_p, c_uint64, c_uint64, c_int]),
    "inflight_phase": (None, [c_void_p, c_uint64, c_int]),
    "inflight_remove": (None, [c_void_p, c_uint64, c_int]),
    "inflight_beat": (None, [c_void_p]),
    "inflight_gauge": (None, [c_void_p, c_int, c_uint64]),
    "inflight_asked": (c_uint64, [c_void_p]),
    "inflight_command": (c_int, [c_void_p, c_uint64]),
    "inflight_carry_out": (c_int, [c_void_p, c_uint64, POINTER(Fail)]),
    "inflight_polled": (c_int, [c_void_p, c_uint64, c_uint64]),
}


def load(path=None):
    """Loads libinflight: the packaged one unless ``path`` names another.

    ``PyDLL``, so that the GIL is never released: a mark must not give the turn to another thread.
    Raises ``OSError`` where it cannot be loaded, ``AttributeError`` where it lacks a call.
    """
    library = ctypes.PyDLL(str(path or Path(__file__).with_name("libinflight.so")))
    for name, (result, arguments) in _CALLS.items():
        call = getattr(library, name)
        call.restype = result
        call.argtypes = arguments
    return library


# More are counted as this many; making an array type is slow, so each is made once.
_PEERS_MOST = 32
_ARRAYS = [Peer * length for length in range(_PEERS_MOST + 1)]


def peers(pairs):
    """A C array of ``(kind number, value bytes)``, with the first of too many."""
    kept = pairs[:_PEERS_MOST]
    return _ARRAYS[len(kept)](*[(kind, 0, value) for kind, value in kept])
