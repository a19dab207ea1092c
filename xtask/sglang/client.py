"""The client's side: the same request to both servers, as a router sends it."""

import http.client
import json
import time

import space
from lines import say

PATIENCE = 900.0
"""Longest wait for an answer in seconds: longer than any time-out of the engine."""


def call(server, method, path, body=None, patience=PATIENCE):
    """One HTTP call from where the server lives: status, or 0 with nothing but the reason, and
    the decoded body."""
    if server.space:
        space.enter(server.space)
    connection = http.client.HTTPConnection(server.host, server.port, timeout=patience)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"content-type": "application/json"})
        answer = connection.getresponse()
        raw = answer.read()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw.decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()


def body(bootstrap, room, prompt, new, seed):
    """A request of `prompt` tokens in and `new` tokens out; the same seed is the same prompt."""
    return {
        "rid": f"room-{room}",
        "input_ids": [(i * i * 3 + i * 7 + seed * 13) % 250 for i in range(prompt)],
        "sampling_params": {"max_new_tokens": new, "temperature": 0, "ignore_eos": True},
        "bootstrap_host": bootstrap[0],
        "bootstrap_port": bootstrap[1],
        "bootstrap_room": room,
    }


def request(server, side, room, message):
    """Send one side's part and say what came back."""
    begun = time.monotonic()
    status, answer = call(server, "POST", "/generate", message)
    tokens, why = [], ""
    if isinstance(answer, dict) and "output_ids" in answer:
        tokens = answer["output_ids"]
    else:
        why = reason(answer)
    took = round(time.monotonic() - begun, 3)
    say("answered", room=room, side=side, status=status, why=why, tokens=tokens, took_s=took)


def reason(answer):
    """The text of an answer that is none, kept short."""
    if isinstance(answer, dict):
        inner = answer.get("error", answer)
        answer = inner.get("message", inner) if isinstance(inner, dict) else inner
    return str(answer)[:400]
