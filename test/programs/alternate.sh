#!/bin/sh
# alternate.sh N: writes to stdout and stderr in turn, without a pause: their true order is only in one pipe.
i=1
while [ "$i" -le "$1" ]; do
  echo "out $i"
  echo "err $i" >&2
  i=$((i + 1))
done
