#!/bin/sh
# Traps SIGTERM and needs $1 seconds to end well, in steps, so that a signal to its group would be seen.
trap 'echo asked; i=0; while [ $i -lt "$1" ]; do sleep 0.1; i=$((i+1)); done; echo saved; exit 7' TERM
echo ready
while :; do sleep 0.05; done
