# shellcheck shell=bash disable=SC2034 # read by those who source it
# SPDX-License-Identifier: Apache-2.0
# systemd for a machine without it: starts and stops what devstack's unit files say.
#
# devstack calls it by $SYSTEMCTL.  Of a unit it knows Environment, ExecStartPre, ExecStart and
# KillSignal; a process sees nothing of our environment, as under systemd.  Logs and process ids
# are in $SITE/units.

SYSTEMD_DIR=$SITE/systemd
SYSTEMCTL=stand_in_systemctl
UNITS=$SITE/units
mkdir -p "$SYSTEMD_DIR" "$UNITS"

function stand_in_systemctl {
    local verb=$1 unit=${2:-}
    unit=${unit%.service}
    echo "systemctl $*" >>"$SITE/calls"
    case "$verb" in
        daemon-reload) ;;
        enable)
            [[ -f "$SYSTEMD_DIR/$unit.service" ]] && touch "$UNITS/$unit.enabled"
            ;;
        disable)
            rm "$UNITS/$unit.enabled"
            ;;
        is-enabled)
            [[ -f "$UNITS/$unit.enabled" ]]
            ;;
        start)
            unit_runs "$unit" || unit_start "$unit"
            ;;
        stop)
            if unit_runs "$unit"; then
                unit_stop "$unit"
            fi
            rm -f "$UNITS/$unit.pid"
            ;;
        *)
            echo "systemctl $verb: unknown here" >&2
            return 1
            ;;
    esac
}

function unit_value {
    sed -n "s/^$2 *= *//p" "$SYSTEMD_DIR/$1.service"
}

function unit_runs {
    local pid
    pid=$(cat "$UNITS/$1.pid" 2>/dev/null) || return 1
    # No parent may be there to reap it.
    grep -qs '^State:\s*[^ZX[:space:]]' "/proc/$pid/status"
}

function unit_start {
    local unit=$1 word
    local -a before command environment
    [[ "$(unit_value "$unit" User)" == "$(id -un)" ]]
    read -r -a before <<<"$(unit_value "$unit" ExecStartPre)"
    read -r -a command <<<"$(unit_value "$unit" ExecStart)"
    # Several in a line, any of them in quotation marks.
    while read -r word; do
        environment+=("$word")
    done < <(unit_value "$unit" Environment | xargs -n 1)
    "${before[@]}"
    [[ "${command[0]}" == /* ]]
    # With an id of its own, by which its children are found.
    setsid env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "${environment[@]}" "${command[@]}" >>"$UNITS/$unit.log" 2>&1 </dev/null &
    # The second is there for the test, also when the unit was stopped.
    echo "$!" | tee "$UNITS/$unit.pid" >"$UNITS/$unit.leader"
}

function unit_stop {
    local unit=$1 signal pid
    signal=$(unit_value "$unit" KillSignal)
    pid=$(cat "$UNITS/$unit.pid")
    kill -s "${signal:-SIGTERM}" "$pid"
    for _ in {1..1200}; do
        unit_runs "$unit" || return 0
        sleep 0.1
    done
    echo "$unit does not end" >&2
    return 1
}
