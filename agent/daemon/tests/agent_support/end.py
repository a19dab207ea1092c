"""One end of a room, with the real hook: a prefill that states where it is reached, or a decode that
names those ranks.

    end.py ROLE NAME ADDRESS ROOM

Says `@ready`; ends the room as its standard input ends.
"""

import sys
import time

from inflightd_hook import open_worker


def main():
    role, name, address, room = sys.argv[1:]
    prefill = role == "prefill"
    own = [("nixl_agent", name)] + ([("endpoint", address)] if prefill else [])
    worker = open_worker(role, "test", "1", identities=own)
    peers = [("nixl_agent", "the-decode")] if prefill else [("endpoint", address)]
    seq = worker.append(int(room), f"rid-{role}", peers=peers)
    worker.beat()
    print("@ready", flush=True)
    sys.stdin.read()
    worker.remove(seq, "failed")
    # The agent reads the table still.
    time.sleep(60)


main()
