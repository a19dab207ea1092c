# A pair of NIXL agents in a virtual machine: the pair's own scripts with the real hook, UCX over soft-RoCE,
# each end at its end of the cable, and what may happen to them. Each case has processes of its own; what is
# right is asked by their ids. Sourced by the machine's init, which goes on with these cases instead of its
# own; what it has by the same name from rdma.sh is meant for engines over verbs.

# python, site, scripts: where those lie.
. /nixl.env

# Of each end, in bytes. A room is sent in chunks, each a transfer of four operations; they are of a size at
# which UCX does not copy.
MEMORY=16777216
LARGE=8388608
CHUNK=262144
PAGE=65536

# An end of the pair: what it is, and its device. UCX does what $ucx says.
node() {
    mkfifo "/tmp/orders.$1"
    env UCX_TLS=rc,self UCX_NET_DEVICES="$2" UCX_LOG_LEVEL=error $ucx OPENBLAS_NUM_THREADS=1 \
        PYTHONPATH="$site:$scripts" "$python" "$scripts/$1.py" "vm-$1" --memory $MEMORY \
        <"/tmp/orders.$1" >"/tmp/$1.out" 2>"/tmp/$1.err" &
}

# A field of the last event of a name that an end has said.
said() {
    sed -n "s/^{\"event\": \"$2\".*\"$3\": \"*\([^\",}]*\).*/\1/p" "/tmp/$1.out" | tail -n 1
}

# A pair for a case: its name, and settings of UCX.
pair() {
    case=$1
    shift
    ucx=$*
    rm -f /tmp/orders.* /tmp/*.out /tmp/*.err
    node decode rxe1:1
    decode=$!
    exec 4>/tmp/orders.decode
    node prefill rxe0:1
    prefill=$!
    exec 5>/tmp/orders.prefill
    echo "@@ case $case $prefill $decode"
    await /tmp/decode.out '"ready"' 600
    await /tmp/prefill.out '"ready"' 600
}

# The prefill learns of the decode, and UCX's ends meet.
meet() {
    echo "{\"do\": \"peer\", \"name\": \"vm-decode\", \"metadata\": \"$(said decode ready metadata)\"," \
        "\"address\": $(said decode ready address), \"size\": $MEMORY}" >&5
    await /tmp/prefill.out '"peered"' 600
    for source in marks transfers completions; do
        await /tmp/lines "\"worker\":{\"pid\":$prefill,.*\"source\":\"$source\",\"sight\":\"visible\"" 300
    done
    # Some readings before anything moves: what is there then is where counts begin.
    sleep 3
}

# Empties the far end's memory, so that what lands in it shows. It does one thing after the other: once it
# has answered a question it has done so.
empty() {
    echo "{\"do\": \"clear\", \"offset\": 0, \"size\": $MEMORY}" >&4
    landed $MEMORY
}

# A room: its number, its bytes, seconds before each of its chunks, and what else is to be said of it.
room() {
    echo "{\"do\": \"append\", \"room\": $1, \"to\": \"vm-decode\", \"bytes\": $2, \"chunk\": $CHUNK," \
        "\"page\": $PAGE, \"pace\": $3$4}" >&5
}

# A room of which a part has landed: what the far end does to itself then, seconds before each of its chunks,
# and what else is to be said of it.
midway() {
    empty
    echo "{\"do\": \"watch\", \"room\": 1, \"offset\": 0, \"size\": $LARGE, \"after\": 1048576, \"then\": $1}" >&4
    await /tmp/decode.out '"watching"' 50
    room 1 $LARGE "$2" "$3"
    await /tmp/decode.out '"landed"' 300
}

# How many bytes of what the far end was sent are there. Each question has a number of its own.
questions=1000
landed() {
    questions=$((questions + 1))
    echo "{\"do\": \"check\", \"room\": $questions, \"offset\": 0, \"size\": $1}" >&4
    await /tmp/decode.out "\"checked\".*\"room\": $questions," 100
    landed=$(($1 - $(said decode checked wrong)))
}

# Waits until a room has ended, and looks at each of its bytes.
ended() {
    await /tmp/prefill.out "\"removed\".*\"room\": $1," 300
    landed "$2"
    [ "$landed" = "$2" ] || echo "@@ wrong $case: of $2 bytes of room $1 $landed are right"
}

# Waits for the verdict on the case's prefill, which is told before anything is mended and moves on.
verdict() {
    await /tmp/lines "\"type\":\"verdict\".*\"worker\":{\"pid\":$prefill,.*\"cause\":\"$1\"" 300
}

# Says what had landed, for the verdict's count, and, where nothing is posted any more, what was posted.
final() {
    echo "@@ said $case final bytes=$1"
}
final_posted() {
    final "$1 posted=$(($(grep -c '"posting".*"room": 1,' /tmp/prefill.out) * CHUNK))"
}

lose() {
    /sbin/tc qdisc change dev v0 root netem loss 100% 2>&1 | sed "s/^/@@ tc /"
}

find() {
    /sbin/tc qdisc change dev v0 root netem loss 0%
}

# Ends the case's processes, and tells what they said. What is still on its way has a moment to arrive.
unpair() {
    sleep 1
    exec 4>&- 5>&-
    kill -9 "$prefill" "$decode" 2>/dev/null
    wait "$prefill" "$decode" 2>/dev/null
    # Once more with the rest of the lines at the end: here for who reads the serial line.
    grep "\"worker\":{\"pid\":$prefill,.*\"finding\"" /tmp/lines | sed "s/^/@@ told $case /"
    for end in prefill decode; do
        sed "/\"ready\"/d;s/^/@@ $end $case /" /tmp/$end.out
        sed "s/^/@@ err $case /" /tmp/$end.err
    done
}

nixl_cases() {
    pair healthy
    meet
    for n in 1 2 3; do
        empty
        room $n $((n * 1048576)) 0
        ended $n $((n * 1048576))
    done
    unpair

    # For ever: soft-RoCE never lowers a count of 7, which is UCX's own.
    pair loss
    meet
    midway null 0.1
    lose
    verdict link_fault
    landed $LARGE
    final_posted $landed
    find
    ended 1 $LARGE
    unpair

    # UCX's own time-out of a second and six retries would be over long after the verdict. The engine does not
    # handle what NIXL says.
    pair exhausted UCX_RC_RETRY_COUNT=6 UCX_RC_TIMEOUT=100ms
    meet
    midway null 0.1 ', "fault": "drop_status"'
    lose
    verdict link_fault
    landed $LARGE
    final $landed
    find
    unpair

    pair killed
    meet
    midway '"kill"' 0.1
    verdict peer_dead
    final_posted "$(said decode landed bytes)"
    unpair

    pair killed_handled UCX_RC_RETRY_COUNT=6 UCX_RC_TIMEOUT=50ms
    meet
    midway '"kill"' 0.1
    await /tmp/prefill.out '"removed"' 300
    unpair

    # The far process has no part in a write, and yet a transfer's flush does not end any more a while after it
    # was stopped (20 s is UCX's time between two looks whether a peer lives): so the room takes longer.
    pair frozen
    meet
    empty
    room 2 1048576 0
    ended 2 1048576
    midway '"stop"' 1
    verdict peer_frozen
    await /tmp/prefill.out '"removed".*"room": 1,' 300
    kill -CONT "$decode"
    landed $LARGE
    final_posted $landed
    unpair

    # To meet takes both processes.
    pair frozen_first
    empty
    kill -STOP "$decode"
    meet
    room 1 $LARGE 0.1
    verdict peer_frozen
    final_posted 0
    kill -CONT "$decode"
    ended 1 $LARGE
    unpair
}
