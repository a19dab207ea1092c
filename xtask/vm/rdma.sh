# RDMA in a virtual machine: an engine over verbs with the real hook, on soft-RoCE at both ends of a pair
# of interfaces, and what may happen to it. Each case has processes of its own; what is right is asked by
# their ids. Sourced by the machine's init.

# Two devices in one namespace: what is for the other end has to take the cable.
cable() {
    /sbin/ip link set lo up
    /sbin/ip link add v0 type veth peer name v1
    for n in 0 1; do
        /sbin/ip addr add 10.0.0.$((n + 1))/24 dev v$n
        /sbin/ip link set v$n up
        echo 1 >/proc/sys/net/ipv4/conf/v$n/accept_local
        echo 0 >/proc/sys/net/ipv4/conf/v$n/rp_filter
        /sbin/ip rule add pref $((n + 1)) iif v$n lookup local
        /sbin/ip rule add pref $((n + 11)) to 10.0.0.$((2 - n)) lookup $((n + 100))
    done
    route
    echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
    /sbin/ip rule add pref 20 lookup local
    /sbin/ip rule del pref 0
    # From the start: where the queue was put on under traffic soft-RoCE now and then flushed its queue
    # pair at once (2 of 5 runs).
    /sbin/tc qdisc add dev v0 root netem 2>&1 | sed "s/^/@@ tc /"
    for n in 0 1; do rdma link add rxe$n type rxe netdev v$n 2>&1 | sed "s/^/@@ rdma /"; done
}

# The ways over the cable, which go with an interface that goes down.
route() {
    for n in 0 1; do
        /sbin/ip route replace 10.0.0.$((2 - n)) dev v$n src 10.0.0.$((n + 1)) table $((n + 100))
    done
}

# A pair for a case: with time-out, retries and retries of a receiver that is not ready.
pair() {
    case=$1
    rm -f /tmp/end.* /tmp/orders.rdma
    mkfifo /tmp/orders.rdma
    verbs serve rxe1 10.0.0.2 /tmp/end.b /tmp/end.a >/tmp/serve.out 2>&1 &
    serve=$!
    verbs send rxe0 10.0.0.1 /tmp/end.a /tmp/end.b "$2" "$3" "$4" </tmp/orders.rdma >/tmp/send.out 2>&1 &
    send=$!
    exec 4>/tmp/orders.rdma
    echo "@@ case $case $send $serve"
    await /tmp/send.out "@open" 100
    await /tmp/lines "\"worker\":{\"pid\":$send,.*\"source\":\"marks\",\"sight\":\"visible\"" 200
    # Some readings before anything moves: what is there then is where counts begin.
    sleep 3
}

# Waits for the verdict on the case's sender, and asks what had arrived then.
verdict() {
    await /tmp/lines "\"type\":\"verdict\".*\"worker\":{\"pid\":$send,.*\"cause\":\"$1\"" 150
    # Before anything is mended, and moves on.
    echo final >&4
    await /tmp/send.out "@final" 50
}

# Ends the case's processes. What is still on its way has a moment to arrive first: soft-RoCE of 6.12
# ended the machine once as a packet came by whose queue pair was gone.
unpair() {
    sleep 1
    sed "s/^@/@@ said $case /" /tmp/send.out
    exec 4>&-
    # The sender first: while it ended, the end of its peer was told once, which was true.
    for end in "$send" "$serve"; do
        kill -9 "$end" 2>/dev/null
        wait "$end" 2>/dev/null
    done
}

# A room of which three chunks and more are there.
midway() {
    echo "room $1 65536 400 50" >&4
    tries=0
    until grep -q "chunks=[3-9]\|chunks=[0-9][0-9]" /tmp/send.out; do
        tries=$((tries + 1))
        [ $tries -gt 100 ] && echo "@@ missing chunks" && return
        echo tell >&4
        sleep 0.2
    done
}

rdma_cases() {
    pair healthy 14 6 6
    for op in write read send; do
        echo "room $op 65536 20 1" >&4
        await /tmp/send.out "@room $op" 150
    done
    unpair

    # For ever: soft-RoCE never lowers a count of 7.
    pair loss 14 7 7
    midway write
    /sbin/tc qdisc change dev v0 root netem loss 100% 2>&1 | sed "s/^/@@ tc /"
    verdict link_fault
    /sbin/tc qdisc change dev v0 root netem loss 0%
    unpair

    pair exhausted 14 6 6
    midway write
    /sbin/tc qdisc change dev v0 root netem loss 100% 2>&1 | sed "s/^/@@ tc /"
    verdict link_fault
    /sbin/tc qdisc change dev v0 root netem loss 0%
    unpair

    pair port 14 7 7
    midway write
    /sbin/ip link set v1 down
    verdict link_fault
    /sbin/ip link set v1 up
    route
    unpair

    pair killed 14 7 7
    midway write
    kill -9 "$serve"
    verdict peer_dead
    unpair

    # Another goes by its name, and by the same files.
    pair restarted 14 7 7
    midway write
    kill -9 "$serve"
    wait "$serve" 2>/dev/null
    verbs serve rxe1 10.0.0.2 /tmp/end.c /tmp/end.a >/tmp/serve.out 2>&1 &
    serve=$!
    await /tmp/serve.out "@open" 100
    verdict peer_dead
    unpair

    # The queue pair does not come back with the port. It gives up at once, for the deadline must not be
    # over by then.
    pair flap 14 1 6
    midway write
    /sbin/ip link set v1 down
    await /tmp/send.out "@failed" 150
    /sbin/ip link set v1 up
    route
    verdict link_fault
    unpair

    # The far process has no part in a write.
    pair stopped_write 14 7 7
    kill -STOP "$serve"
    echo "room write 65536 60 100" >&4
    await /tmp/send.out "@room write" 200
    unpair

    pair stopped_send 14 7 7
    midway send
    kill -STOP "$serve"
    verdict peer_frozen
    unpair

    # The same until the device gives up.
    pair not_ready 14 6 3
    midway send
    kill -STOP "$serve"
    verdict peer_frozen
    unpair
}
