#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Set up this machine and run the tests:
#
#   tools/run_tests.sh                 what CI runs: the checks, and all tests but the long ones
#   tools/run_tests.sh run -e full     everything; more arguments are tox's
#
# As root on Debian it installs what bindep.txt lists, starts the servers that do not run, and
# makes accounts for the tests.  Another user changes nothing outside of this folder; tests that
# need what is missing are skipped.  The last lines say what was not run and why, and the totals.
# shellcheck disable=SC2329  # functions are called through timed()
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

usage() {
    cat <<'END'
usage: tools/run_tests.sh [TOX-COMMAND [-e ENVIRONMENT[,...]] [OPTION...] [-- NAME...]]

Set up this machine and run the tests.

  tools/run_tests.sh                     what CI runs: the checks, and all tests but the long ones
  tools/run_tests.sh run -e full         everything, in about an hour
  tools/run_tests.sh run -e full -- crash guides    some parts of it
  tools/run_tests.sh run -e core -- REGEX           tests by name
  tools/run_tests.sh list                the environments of tox, with what each does

As root on Debian it installs the packages of bindep.txt, starts MariaDB, PostgreSQL and RabbitMQ
where they do not run, and makes accounts for the tests.  Another user changes nothing outside of
this folder; tests that need what is missing are skipped.

Variables: ATTACHD_TEST_WORKERS, processes that run tests; CI=true, fail instead of skip; LAB_HOME,
where the lab is.  doc/source/contributor/testing.rst has the rest.
END
}

refuse() {
    echo "tools/run_tests.sh: $1" >&2
    echo "See 'tools/run_tests.sh --help'." >&2
    exit 2
}

# Check the arguments before anything is installed: that takes minutes.
check_arguments() {
    local environments='' name
    case "${1-}" in
        -h | --help | help)
            usage
            exit 0
            ;;
        '' | run | r | run-parallel | p | list | l | config | c) ;;
        *) refuse "there is no command $1: give one of tox, such as run -e full" ;;
    esac
    [ $# -eq 0 ] || shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        case "$1" in
            -e)
                [ -n "${2-}" ] || refuse "argument -e: the name of an environment is missing"
                environments=$2
                shift
                ;;
            -e?*) environments=${1#-e} ;;
            --*)
                # The value of an option may be the next word.
                case "${2--}" in -*) ;; *) shift ;; esac
                ;;
            -*) ;;
            *) refuse "argument $1 is unexpected: names of tests or parts follow --" ;;
        esac
        for name in ${environments//,/ }; do
            grep -q "^\[testenv:$name\]$" tox.ini ||
                [[ $name =~ ^(py3[0-9]*|ALL)$ ]] ||
                refuse "tox.ini has no environment $name"
        done
        [ $# -eq 0 ] || shift
    done
}

# Virtual environment of tox, records of the results.
cache=.cache
venv=$cache/venv

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 \
        -o DPkg::Lock::Timeout=120 "$@"
}

can_install() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null
}

make_venv() {
    if ! python3 -c 'import ensurepip' 2>/dev/null && can_install; then
        apt update
        apt install --no-install-recommends python3-venv
    fi
    if python3 -c 'import ensurepip' 2>/dev/null; then
        python3 -m venv "$venv"
    else
        # Debian's Python has no pip without the package python3-venv.
        python3 -m venv --without-pip "$venv"
        "$venv/bin/python" tools/get_pip.py
    fi
    "$venv/bin/pip" install -q -c constraints.txt 'bindep>=2.13' 'stestr>=4.2.0' 'tox>=4.30'
}

install_packages() {
    local missing
    # bindep prints the missing packages, one a line, and returns 1 if there are any.
    missing=$("$venv/bin/bindep" -b "$@") || [ -n "$missing" ]
    [ -n "$missing" ] || return 0
    if can_install; then
        apt update
        # shellcheck disable=SC2086  # one word is one package
        apt install --no-install-recommends $missing
    else
        echo "Missing packages, which only root can install: ${missing//$'\n'/ }"
    fi
}

start_servers() {
    local server
    for server in mariadb:3306 postgresql:5432 rabbitmq-server:5672; do
        # A server that is being started by its package may need a moment.
        (: <"/dev/tcp/127.0.0.1/${server#*:}") 2>/dev/null ||
            service "${server%:*}" start ||
            echo "${server%:*} cannot be started here"
    done
}

timed() {
    local began=$SECONDS
    echo "== $*"
    "$@"
    echo "== $*: $((SECONDS - began)) s"
}

check_arguments "$@"
mkdir -p $cache
# Only this run is to be counted; how long each test took is kept for the next.
rm -f $cache/core/.stestr/[0-9]* $cache/tox.json $cache/totals
timed make_venv
profiles=(test)
case "$*" in
    *full*) profiles+=(full ${LAB_HOME:+lab}) ;;
esac
timed install_packages "${profiles[@]}"
if [ "$(id -u)" -eq 0 ]; then
    timed start_servers
    timed tools/test-setup.sh
fi

if [ $# -gt 0 ]; then
    exec "$venv/bin/tox" "$@"
fi
# More workers than processors: tests wait for servers, too.  The servers' limits of connections,
# 100 and 151, are enough for about 16.
workers=$(($(nproc) + 2 < 12 ? $(nproc) + 2 : 12))
status=0
ATTACHD_TEST_WORKERS=${ATTACHD_TEST_WORKERS:-$workers} timed \
    "$venv/bin/tox" run-parallel --result-json $cache/tox.json || status=$?
echo
"$venv/bin/python" tools/results.py --tox $cache/tox.json --totals $cache/totals \
    $cache/core || status=1
exit "$status"
