#!/bin/sh
# Ends at once with 3 and leaves a child behind that prints when $1 exists, then ends.
(until [ -e "$1" ]; do sleep 0.05; done; echo late) &
echo early
exit 3
