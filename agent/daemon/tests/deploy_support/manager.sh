# manager.sh NAME BINARY CONFIG UNITS: becomes a systemd manager that is this test's own.
#
# A user manager, because pid 1 is something else here or other people's. It runs as root, so it
# makes the same sandbox of a unit as the system's. In a cgroup of its own: a manager moves every
# process of the cgroup that it starts in. In a mount namespace of its own: the agent is under
# /opt and the runtime directory is /run, whatever this machine has there.
set -eu
name=$1 binary=$2 config=$3 units=$4
for top in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
    if [ -e "$top/cgroup.procs" ]; then
        mkdir -p "$top/$name"
        echo $$ > "$top/$name/cgroup.procs"
    fi
done
grep -q -e "name=systemd:/$name\$" -e "^0::/$name\$" /proc/self/cgroup
! grep -q -e 'name=systemd:/$' /proc/self/cgroup
export XDG_RUNTIME_DIR=/run SYSTEMD_UNIT_PATH="$units" SYSTEMD_LOG_TARGET=console
exec unshare -m sh -c '
    set -eu
    mount -t tmpfs none /opt
    touch /opt/inflightd
    mount --bind "$1" /opt/inflightd
    cp "$2" /opt/inflightd.toml
    mount -t tmpfs none /run
    mkdir -p /run/systemd/system
    exec /lib/systemd/systemd --user
' sh "$binary" "$config"
