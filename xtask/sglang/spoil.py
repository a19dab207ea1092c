"""A thread of the engine that dies of an exception, as one with a fault of its own does."""


def install(order):
    """`order` names what dies, and when; none for a server that is whole."""
    if order:
        transfer_thread(order["transfer_thread"])


def transfer_thread(room):
    """The thread that takes a chunk of that room ends. It is SGLang's call that takes chunks which
    raises, outside of the worker's own handler."""
    from sglang.srt.disaggregation.common.utils import FastQueue

    take = FastQueue.get

    def get(self):
        chunk = take(self)
        if chunk.room == room:
            raise RuntimeError(f"e2e: the transfer thread ends with room {room}")
        return chunk

    FastQueue.get = get
