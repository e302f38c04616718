#!/bin/sh
# Makes the secrets that docker-compose.yml reads from files, once; what is there stays. Run it before the first start.
set -eu
folder="$(dirname "$0")/secrets"
# Containers run as another user, so it is the folder that keeps others out.
mkdir -p "$folder"
chmod 700 "$folder"
umask 022
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
for name in jwt_secret admin_token redis_password; do
  [ -s "$folder/$name" ] || random > "$folder/$name"
done
printf 'redis://:%s@redis:6379' "$(cat "$folder/redis_password")" > "$folder/redis_url"
echo "secrets are in $folder"
