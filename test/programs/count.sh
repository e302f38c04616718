#!/bin/sh
# count.sh N [DELAY]: prints "line 1" … "line N", sleeping DELAY seconds after each.
i=1
while [ "$i" -le "$1" ]; do
  echo "line $i"
  [ -n "$2" ] && sleep "$2"
  i=$((i + 1))
done
