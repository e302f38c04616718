#!/bin/sh
# Plants the kinds of processes that outlive their parents, says `planted`, and ignores SIGTERM itself.
# $1: a figure that makes their command lines unique.
sleep "$1" &
setsid sleep "$1" &
(sleep "$1" &)
env -i /bin/sleep "$1" &
(trap '' TERM HUP; sleep "$1"; :) &
# Out of the group and without its environment: the one that containment `group` can not find.
[ "$2" = hidden ] && env -i /usr/bin/setsid /bin/sleep "$1" &
trap '' TERM HUP
sleep 0.2
echo planted
while :; do sleep "$1"; done
