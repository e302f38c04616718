#!/bin/sh
# Makes a Redis Cluster of empty servers, once: every second half of them replicas. Does nothing where there is one already.
# SHARDS: addresses, separated by spaces. The password comes from a file.
set -eu
REDISCLI_AUTH="$(cat "${PASSWORD_FILE:-/run/secrets/redis_password}")"
export REDISCLI_AUTH
first="${SHARDS%% *}"
for shard in $SHARDS; do
  until redis-cli -h "${shard%:*}" -p "${shard##*:}" ping 2>/dev/null | grep -q PONG; do sleep 0.2; done
done
is_ok() { redis-cli -h "${first%:*}" -p "${first##*:}" cluster info | grep -q cluster_state:ok; }
# shellcheck disable=SC2086
is_ok || redis-cli --cluster create $SHARDS --cluster-replicas 1 --cluster-yes
for _ in $(seq 100); do
  is_ok && exit 0
  sleep 0.2
done
exit 1
