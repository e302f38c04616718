#!/bin/sh
# deaf.sh: says "ready", then ignores SIGTERM, itself and in a child.
trap '' TERM
echo ready
while :; do sleep 0.1; done
