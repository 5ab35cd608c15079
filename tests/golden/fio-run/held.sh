#!/bin/sh
# usage: FAKE_FIO=PROGRAM held.sh fio's own arguments
# Stands between the agent and a fake fio: is held at the start line by `exec_prerun`, as fio is, then becomes the fake, which is
# told the runtime in seconds. FIO_START_S: how long it takes before it is at the gate, as fio does with many jobs or files.
case "$1" in --version | --enghelp*) exec "$FAKE_FIO" "$@" ;; esac
sleep "${FIO_START_S:-0}"
for argument in "$@"; do
	case "$argument" in
	--exec_prerun=*) waiter=${argument#*=} ;;
	--runtime=*us) runtime=$(awk -v us="${argument#*=}" 'BEGIN { printf "%.3f", us / 1000000 }') ;;
	esac
done
sh -c "$waiter" || exit 1
exec "$FAKE_FIO" --runtime="$runtime"
