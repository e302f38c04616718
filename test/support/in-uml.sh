#!/bin/sh
# Runs a command under a kernel of its own, where control groups of version 2 are all ours: user-mode Linux (Debian's package
# user-mode-linux; HOMING_TEST_UML names the program), on this host's files, with a /tmp and a loopback of its own.
# usage: in-uml.sh COMMAND [ARGUMENT]...   Ends with the command's status.
set -eu
uml=${HOMING_TEST_UML:-linux.uml}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
quoted=
for word in "$@"; do quoted="$quoted '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"; done
cat > "$folder/init" <<INIT
#!/bin/sh
export PATH='$PATH' HOME=/tmp HOMING_TEST_LONG=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mkdir /run/out
mount --bind '$folder' /run/out
mount -t tmpfs cgroup /sys/fs/cgroup 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmp /tmp
ip link set lo up
cd '$(pwd)'
$quoted < /dev/null
echo \$? > /run/out/status
echo o > /proc/sysrq-trigger
sleep 10
INIT
chmod +x "$folder/init"
"$uml" mem=2048M root=/dev/root rootfstype=hostfs rootflags=/ rw quiet "init=$folder/init" \
  con=null con0=fd:0,fd:1 < /dev/null 2>&1 | cat
exit "$(cat "$folder/status" 2>/dev/null || echo 125)"
