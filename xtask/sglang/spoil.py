"""What goes wrong inside an engine: a thread that dies of an exception, as one with a fault of its
own does, and messages that are lost on their way."""


def install(order):
    """`order` names what dies, and when; none for a server that is whole."""
    if not order:
        return
    if order.get("transfer_thread") is not None:
        transfer_thread(order["transfer_thread"])
    if order.get("lost_aborts"):
        lost_aborts()


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


def lost_aborts():
    """What a decode says to a prefill when it gives a room up is lost: SGLang sends it once, and
    asks nobody whether it came."""
    from sglang.srt.disaggregation.common import conn

    connect = conn.CommonKVReceiver._connect_to_bootstrap_server.__func__

    def lossy(cls, info):
        sock, lock = connect(cls, info)
        return _Lossy(sock, conn.ABORT_TAG), lock

    conn.CommonKVReceiver._connect_to_bootstrap_server = classmethod(lossy)


class _Lossy:
    """A socket that loses messages whose first part is `tag`."""

    def __init__(self, sock, tag):
        self._sock = sock
        self._tag = tag

    def send_multipart(self, parts, *args, **named):
        if parts[0] != self._tag:
            self._sock.send_multipart(parts, *args, **named)

    def __getattr__(self, name):
        return getattr(self._sock, name)
