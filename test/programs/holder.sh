#!/bin/sh
# holder.sh [setsid]: ends at once, and leaves a child that holds the pipe; in a session of its own if asked.
if [ "$1" = setsid ]; then
  setsid sleep 4 &
else
  sleep 300 &
fi
echo done
