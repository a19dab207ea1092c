"""The hand-shake before a room's bytes may be sent: the prefill asks, the decode answers.

By a connection of its own, as engines do it: beside the transfer library, which knows nothing of it.
A decode that is stopped does not answer although its kernel takes the connection; neither does one
that is mute, which runs, reads the question and leaves it at that.
"""

import socket

from rooms import in_background

HOST = "127.0.0.1"


class Door:
    """Where a decode is asked."""

    def __init__(self):
        self.mute = False
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        # Kept, so that a question without an answer stays one.
        self._asked = []
        in_background(self._serve)

    def _serve(self):
        while True:
            asked, _ = self._listener.accept()
            self._asked.append(asked)
            in_background(self._answer, asked)

    def _answer(self, asked):
        question = asked.makefile().readline()
        if question and not self.mute:
            asked.sendall(question.encode())


def ask(port, room, answered):
    """Ask for a room and call `answered` once there is an answer, which may be never."""
    with socket.create_connection((HOST, port)) as asked:
        asked.sendall(f"{room}\n".encode())
        if asked.makefile().readline():
            answered()
