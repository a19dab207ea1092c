#!/bin/busybox sh
# What a virtual machine does: the agent watches an engine with the real hook, whose rooms end well,
# lose their thread, or stand still. Everything goes to the serial line; what xtask reads begins with
# "@@ ". Nothing here waits by a fixed time for what it can wait for by looking.
/bin/busybox --install -s /bin
export PATH=/bin LD_LIBRARY_PATH=/lib
mkdir -p /proc /sys /dev /run /tmp /var/lib/inflightd
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
# UCX complains of a machine without.
mkdir -p /dev/shm

# In the order in which they load. What is missing shows in what is asked of the machine.
for module in /modules/*.ko; do
    insmod "$module" 2>&1 | sed "s/^/@@ module /"
done
. /rdma.sh
cable

# Prints each line of a file behind a word.
tell() {
    while IFS= read -r line; do echo "@@ $1 $line"; done <"$2"
}

# Waits until a file has the text, or the machine is given up.
await() {
    tries=0
    until grep -q "$2" "$1"; do
        tries=$((tries + 1))
        if [ $tries -gt "$3" ] || ! kill -0 "$agent" 2>/dev/null; then
            echo "@@ missing $2"
            return 1
        fi
        sleep 0.2
    done
}

# The doctor, and an engine without a transfer library.
marks_cases() {
    inflightd doctor --json >/tmp/doctor 2>/tmp/doctor.err
    echo "@@ doctor_exit $?"
    tell doctor /tmp/doctor
    tell doctor_err /tmp/doctor.err

    # The engine reads what it shall do from this pipe, which stays open.
    mkfifo /tmp/orders
    load </tmp/orders >/tmp/load.out 2>&1 &
    engine=$!
    exec 3>/tmp/orders

    inflightd run --json --stall 3 --suspect 1 --listen off --pid $engine >/tmp/lines 2>/tmp/log &
    agent=$!
    if await /tmp/lines '"source":"marks","sight":"visible"' 600; then
        echo "stays 50 1" >&3
        await /tmp/load.out "@stays" 300
        echo "die" >&3
        await /tmp/lines '"cause":"worker_thread_dead"' 300
        echo "stall" >&3
        await /tmp/lines '"finding":"blind"' 300
        # All of them end with their engine.
        echo "quit" >&3
        wait $engine
        await /tmp/lines '"outcome":"unknown"' 300
    fi
    kill -TERM $agent 2>/dev/null
    wait $agent
    echo "@@ agent_exit $?"
    cp /tmp/lines /tmp/lines.marks
    cp /tmp/log /tmp/log.marks
}

# An agent that finds its engines by itself, while cases are run: these, with its deadlines.
watched() {
    inflightd run --json --stall "$2" --suspect "$3" --listen off >/tmp/lines 2>/tmp/log &
    agent=$!
    "$1"
    kill -TERM $agent 2>/dev/null
    wait $agent
    echo "@@ rdma_exit $?"
    tell rdma_line /tmp/lines
    tell rdma_log /tmp/log
}

# The kernel may have left its own line unfinished.
echo
echo "@@ kernel $(uname -r)"
if [ -e /nixl.sh ]; then
    . /nixl.sh
    # UCX's queue pairs repeat once in a second: three times show within ten.
    watched nixl_cases 10 2
else
    marks_cases
    watched rdma_cases 3 1
    tell load /tmp/load.out
    tell line /tmp/lines.marks
    tell log /tmp/log.marks
fi
echo "@@ end"
poweroff -f
