# shellcheck shell=bash
# What the two throwaway-server scripts share: ports, processes, and who runs them. Sourced, never run.
#
# A throwaway server lives in one directory that it owns: data, log, pid, port and password. Everything
# about it is in there, so `stop` and a second `start` need nothing but the directory's name.

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit "${2:-70}"
}

# The command line is `VERB DIR`; sets `verb` and `dir`. DIR becomes absolute: servers change directory.
read_arguments() {
    verb=${1:-} dir=${2:-}
    case $verb in
        start | stop | kill | remove | url) ;;
        *) fail "$(printf 'usage: %s start|stop|kill|remove|url DIR' "$(basename "$0")")" 64 ;;
    esac
    [ -n "$dir" ] || fail "$verb needs the server's directory" 64
    case $dir in
        /*) ;;
        *) dir=$PWD/$dir ;;
    esac
}

# Sets `as_server_user`, the words to put before a command to run it as an ordinary user: PostgreSQL refuses
# to run as root, and a broker has no need to. Who is not root runs everything as they are; root takes the
# first of the named users that exists. `setpriv` replaces itself by the command, so that the pid of a
# background job is the server's own.
choose_server_user() {
    local user
    server_user='' as_server_user=(env)
    [ "$(id -u)" -eq 0 ] || return 0
    for user in "$@" nobody; do
        if id "$user" >/dev/null 2>&1; then
            server_user=$user
            as_server_user=(setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups --)
            return 0
        fi
    done
    fail "root may not run this server and there is no user to run it as: tried $* nobody"
}

# Makes the directory, owned by whoever runs the server.
make_directory() {
    mkdir -p "$dir" || fail "cannot make $dir"
    chmod 0700 "$dir"
    if [ -n "$server_user" ]; then
        chown "$server_user" "$dir"
        "${as_server_user[@]}" test -w "$dir" ||
            fail "$server_user cannot reach $dir: choose a place that others may enter, such as /tmp"
    fi
}

# A process that has ended but that nobody has waited for yet is not running.
is_running() {
    local pid=${1:-} state
    [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null || return 1
    state=$(ps -o stat= -p "$pid" 2>/dev/null) || return 1
    case $state in
        Z* | '') return 1 ;;
    esac
}

# Waits until a condition holds, at most so many seconds.
wait_until() {
    local seconds=$1 deadline
    shift
    deadline=$((SECONDS + seconds))
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

has_ended() {
    ! is_running "$1"
}

port_is_free() {
    ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# A port below the range from which the system hands out its own. Somebody may take it before we do:
# callers try again with another when the server cannot bind.
free_port() {
    local port
    while :; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        if port_is_free "$port"; then
            printf '%s\n' "$port"
            return 0
        fi
    done
}

random_password() {
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}

# Only a directory that a server of ours made is ever deleted.
remove_directory() {
    [ -e "$dir" ] || return 0
    [ -f "$dir/throwaway" ] || fail "$dir was not made by this script: not removing it"
    rm -rf -- "$dir"
}
