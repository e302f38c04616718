#!/bin/sh
# Makes the secrets that docker-compose.yml reads from files, once; what is there stays. Run it before the first start.
set -eu
folder="$(dirname "$0")/secrets"
# Containers run as another user, so it is the folder that keeps others out.
mkdir -p "$folder"
chmod 700 "$folder"
umask 022
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
for name in jwt_secret admin_token redis_password metrics_token grafana_password; do
  [ -s "$folder/$name" ] || random > "$folder/$name"
done
password="$(cat "$folder/redis_password")"
printf 'redis-cluster://:%s@172.31.74.11:6379,172.31.74.12:6379,172.31.74.13:6379' "$password" > "$folder/shards_url"
printf 'redis://:%s@redis:6379' "$password" > "$folder/redis_url"
echo "secrets are in $folder"
