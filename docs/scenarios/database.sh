#!/bin/bash
# database.sh: PostgreSQL on a namespace of a box, whose target is killed in the middle
# (database.md).
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# Debian keeps the programs of the server out of PATH.
for bin in /usr/lib/postgresql/*/bin; do PATH=$bin:$PATH; done
needs postgres initdb pg_ctl pgbench psql setpriv mkfs.ext4
chmod 755 "$work" # PostgreSQL refuses to run as root

machine box 192.168.13.147
machine db 192.168.13.146
drives box 1 2G
chmod 755 "$work/db"

step "the box: a drive with a journal, and a namespace on it"
target='ebof serve --drive name=d0,backing=/dev/nvme0n1 --nqn nqn.2014-08.org.example:d0 --listen tcp://192.168.13.147:4420 --host nqn.2014-08.org.example:host:db'
serve box "$target"
on box 'ebof target add namespace d0 1G --attach nqn.2014-08.org.example:host:db'

step "the database's machine: a file system on it, and a database in that"
connect='ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:d0 -q nqn.2014-08.org.example:host:db -k 2 -c 1 -l -1'
on db "$connect"
on db "mkfs.ext4 -q $(disk db nvme0n1) && mkdir pg && mount $(disk db nvme0n1) pg && install -d -o nobody -m 700 pg/data"
as='setpriv --reuid=nobody --regid=nogroup --clear-groups'
quiet db 'install -d -o nobody socket acks'
on db "$as initdb -D pg/data -k -A trust -U postgres --no-instructions | tail -n 2"
# Its socket alone, and no TCP.
quiet db "printf '%s\n' \"listen_addresses = ''\" \"unix_socket_directories = '\$PWD/socket'\" >>pg/data/postgresql.conf && sync pg/data/postgresql.conf"
export PGHOST=$work/db/socket PGUSER=postgres
# An immediate shutdown, before its file system is unmounted; while the device has no target, it
# lasts until that is disconnected.
at_exit 'kill -QUIT "${job[postgres]:-}" && within 3 gone "${job[postgres]}"'
start_database() {
  start db postgres "$as postgres -D pg/data"
  check "the database is ready" within 20 quiet db 'pg_isready'
}
start_database
on db 'psql -q -c "CREATE TABLE paid (run int, client int, number int, PRIMARY KEY (run, client, number))"'
cat >"$work/db/pay.sql" <<'END'
\set number :number + 1
INSERT INTO paid VALUES (:run, :client_id, :number);
END
# pgbench logs a transaction after the database has acknowledged it, beginning with client and
# number.
load() {
  start db "load$1" "pgbench -n -f pay.sql -D run=$1 -D number=0 -c 4 -T $2 -l --log-prefix=acks/$1 postgres"
}
# Says what was acknowledged, and what of it is not in the table.
cat >"$work/db/compare.sh" <<'END'
awk '{ split(FILENAME, part, /[\/.]/); print part[2], $1, $2 }' acks/* | sort >acknowledged
psql -At -F ' ' -c 'SELECT run, client, number FROM paid' | sort >table
comm -23 acknowledged table >lost
comm -13 acknowledged table >more
wc -l acknowledged table lost more | grep -v total
END

step "transactions run; the target is killed, and started again 3 s later"
load 1 8
sleep 2
end box KILL
sleep 3
serve box "$target"
check "pgbench reaches its end" within 20 gone "${job[load1]}"
cat "$work/load1.log"
check "no transaction failed: they only waited" grep -q 'failed transactions: 0 ' "$work/load1.log"
on db 'bash compare.sh'
check "no acknowledged transaction is lost" test -s "$work/db/acknowledged" -a ! -s "$work/db/lost"

step "both machines fail: the target and the device of the database are killed at once"
load 2 20
sleep 2
end box KILL
# shellcheck disable=SC2016 # the machine expands it
on db 'kill -9 $(grep -Po "\"pid\": \K\d+" run/nvme0/state.json)'
check "pgbench ends, without its database" within 20 gone "${job[load2]}"
grep -o 'PANIC:.*' "$work/load2.log"
end postgres QUIT
check "what is left of the file system is unmounted" within 10 quiet db 'umount pg'
on db 'ebof list'

step "the target is started again, the database's machine comes back"
serve box "$target"
on db "$connect"
on db "mount $(disk db nvme0n1) pg"
start_database
grep -E 'redo (starts|done)' "$work/postgres.log"
on db 'bash compare.sh'
check "no acknowledged transaction is lost" test -s "$work/db/acknowledged" -a ! -s "$work/db/lost"
check "at most one transaction of each client is there without acknowledgement" test "$(wc -l <"$work/db/more")" -le 4
end postgres INT # a fast shutdown
on db "$as pg_checksums -D pg/data"
check "every page of the database has its checksum" grep -q 'Bad checksums: *0$' <<<"$output"
on db 'umount pg && ebof disconnect-all'
finish
