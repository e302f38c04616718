#!/bin/sh
# chatterer.sh: ends at once, and leaves a child that goes on printing without end.
(while :; do echo still here; sleep 0.02; done) &
echo leader done
