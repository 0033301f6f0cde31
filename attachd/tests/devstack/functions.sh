# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the plug-in calls of devstack, as devstack documents it, for the real servers of a test.
#
# Packages and Apache are left out: what would be installed is noted in $SITE/calls.

function note {
    echo "$*" >>"$SITE/calls"
}

# These tests are root's.
function sudo {
    "$@"
}

function echo_summary {
    echo "== $*"
}

function die {
    echo "line $1: ${*:2}" >&2
    exit 1
}

function trueorfalse {
    local default=$1 value=${!2:-}
    case "${value,,}" in
        1 | yes | true) echo True ;;
        0 | no | false) echo False ;;
        *) echo "$default" ;;
    esac
}

# -- Plug-ins

function define_plugin {
    note "plug-in $1"
}

function run_phase {
    local folder=$ATTACHD_DIR/devstack
    # shellcheck source=/dev/null
    case "$1" in
        override_defaults) source "$folder/override-defaults" ;;
        source) source "$folder/settings" ;;
        *) source "$folder/plugin.sh" "$@" ;;
    esac
}

# -- Services

function is_service_enabled {
    local service
    for service in "$@"; do
        if [[ ",$ENABLED_SERVICES," == *,$service,* ]]; then
            return 0
        fi
        if declare -F "is_${service}_enabled" >/dev/null && "is_${service}_enabled"; then
            return 0
        fi
        if [[ "$service" == nova && ",$ENABLED_SERVICES" == *,n-* ]]; then
            return 0
        fi
    done
    return 1
}

function enable_service {
    local service
    for service in "$@"; do
        if [[ ",$DISABLED_SERVICES," == *,$service,* ]]; then
            echo "$service was disabled" >&2
        elif ! is_service_enabled "$service"; then
            ENABLED_SERVICES+=,$service
        fi
    done
}

function disable_service {
    local service
    for service in "$@"; do
        DISABLED_SERVICES+=,$service
        ENABLED_SERVICES=,$ENABLED_SERVICES,
        ENABLED_SERVICES=${ENABLED_SERVICES//,$service,/,}
        ENABLED_SERVICES=${ENABLED_SERVICES#,}
        ENABLED_SERVICES=${ENABLED_SERVICES%,}
    done
}

# -- Installing: noted only

function is_fedora {
    return 1
}

function install_package {
    note "install_package $*"
}

function stop_service {
    note "stop_service $*"
}

function setup_develop {
    note "setup_develop $*"
}

function get_python_exec_prefix {
    dirname "$(type -P attachd-manage)"
}

# -- Files

# iniset [-sudo] FILE SECTION OPTION VALUE
function iniset {
    if [[ "$1" == -sudo ]]; then
        shift
    fi
    touch "$1"
    # What was there is replaced where it stands; what is new comes to the end of its section.
    section="[$2]" option=$3 value=$4 awk '
        function put() { if (here && !done) { print option " = " value; done = 1 } }
        BEGIN { section = ENVIRON["section"]; option = ENVIRON["option"]; value = ENVIRON["value"] }
        /^\[/ { put(); here = ($0 == section) }
        here && index($0, option " = ") == 1 { put(); next }
        { print }
        END { if (!done) { if (!here) { print section; here = 1 } put() } }
    ' "$1" >"$SITE/written"
    cat "$SITE/written" >"$1"
}

function setup_logging {
    iniset "$1" DEFAULT log_color False
}

# -- Database and message queue

function database_connection_url {
    echo "mysql+pymysql://$DATABASE_USER:$DATABASE_PASSWORD@$MYSQL_HOST/$1?charset=utf8"
}

function recreate_database {
    MYSQL_PWD=$DATABASE_PASSWORD mysql -u"$DATABASE_USER" -h"$MYSQL_HOST" \
        -e "DROP DATABASE IF EXISTS $1; CREATE DATABASE $1 CHARACTER SET utf8"
}

function rpc_backend_add_vhost {
    if ! sudo rabbitmqctl --quiet list_vhosts | grep -qx "$1"; then
        sudo rabbitmqctl add_vhost "$1"
        sudo rabbitmqctl set_permissions -p "$1" "$RABBIT_USERID" ".*" ".*" ".*"
    fi
}

# iniset_rpc_backend SERVICE FILE SECTION VHOST
function iniset_rpc_backend {
    iniset "$2" "$3" transport_url "rabbit://$RABBIT_USERID:$RABBIT_PASSWORD@$RABBIT_HOST:5672/$4"
}

# -- Keystone

function cloud {
    openstack --os-cloud devstack-system-admin "$@"
}

# create_service_user NAME [ROLE]
function create_service_user {
    local role
    cloud user create "$1" --or-show --password "$SERVICE_PASSWORD" \
        --domain "$SERVICE_DOMAIN_NAME" -c id -f value
    for role in service ${2:-}; do
        cloud role add "$role" --user "$1" --user-domain "$SERVICE_DOMAIN_NAME" \
            --project "$SERVICE_PROJECT_NAME" --project-domain "$SERVICE_DOMAIN_NAME"
    done
}

# get_or_create_service NAME TYPE DESCRIPTION
function get_or_create_service {
    cloud service show "$2" -c id -f value 2>/dev/null ||
        cloud service create "$2" --name "$1" --description "$3" -c id -f value
}

# get_or_create_endpoint TYPE REGION PUBLIC [ADMIN] [INTERNAL]
function get_or_create_endpoint {
    endpoint_of_interface public "$1" "$2" "$3"
    endpoint_of_interface admin "$1" "$2" "${4:-}"
    endpoint_of_interface internal "$1" "$2" "${5:-}"
}

function endpoint_of_interface {
    local interface=$1 type=$2 region=$3 url=$4 found
    if [[ -n "$url" ]]; then
        found=$(cloud endpoint list --service "$type" --region "$region" \
            --interface "$interface" -c ID -f value)
        if [[ -z "$found" ]]; then
            cloud endpoint create "$type" "$interface" "$url" --region "$region" -c id -f value
        fi
    fi
}

# configure_keystoneauth FILE USER SECTION
function configure_keystoneauth {
    iniset "$1" "$3" auth_type password
    iniset "$1" "$3" auth_url "$KEYSTONE_SERVICE_URI"
    iniset "$1" "$3" username "$2"
    iniset "$1" "$3" password "$SERVICE_PASSWORD"
    iniset "$1" "$3" user_domain_name "$SERVICE_DOMAIN_NAME"
    iniset "$1" "$3" project_name "$SERVICE_PROJECT_NAME"
    iniset "$1" "$3" project_domain_name "$SERVICE_DOMAIN_NAME"
}

# configure_keystone_authtoken_middleware FILE USER [SECTION] [SERVICE_TYPE]
function configure_keystone_authtoken_middleware {
    configure_keystoneauth "$1" "$2" "${3:-keystone_authtoken}"
    iniset "$1" "${3:-keystone_authtoken}" www_authenticate_uri "$KEYSTONE_SERVICE_URI"
    iniset "$1" "${3:-keystone_authtoken}" service_type "$4"
}

# -- Processes

# write_uwsgi_config FILE MODULE PATH ADDRESS:PORT NAME
function write_uwsgi_config {
    local line
    if [[ -z "$4" ]]; then
        die $LINENO "there is no Apache here"
    fi
    rm -f "$1"
    echo "[uwsgi]" >"$1"
    for line in "module = $2" "http = $4" "processes = 2" "master = true" "lazy-apps = true" \
        "plugins = http,python3" "enable-threads = true" "die-on-term = true" \
        "exit-on-reload = false" "worker-reload-mercy = 80" "thunder-lock = true" \
        "hook-master-start = unix_signal:15 gracefully_kill_them_all" "buffer-size = 65535" \
        "add-header = Connection: close" "start-time = %t"; do
        echo "$line" >>"$1"
    done
}

# run_process NAME COMMAND [GROUP] [USER] [VARIABLES]
function run_process {
    local unit=devstack@$1.service
    if is_service_enabled "$1"; then
        iniset -sudo "$SYSTEMD_DIR/$unit" Service User "${4:-$STACK_USER}"
        iniset -sudo "$SYSTEMD_DIR/$unit" Service ExecStart "$2"
        iniset -sudo "$SYSTEMD_DIR/$unit" Service Environment "${5:-"\"PATH=$PATH\""}"
        $SYSTEMCTL daemon-reload
        $SYSTEMCTL enable "$unit"
        $SYSTEMCTL start "$unit"
    fi
}

function stop_process {
    local unit=devstack@$1.service
    if is_service_enabled "$1" && $SYSTEMCTL is-enabled "$unit"; then
        $SYSTEMCTL stop "$unit"
        $SYSTEMCTL disable "$unit"
    fi
}

# wait_for_service SECONDS URL
function wait_for_service {
    python3 - "$@" <<'END'
import sys
import time
from urllib import error, request

seconds, url = sys.argv[1:]
deadline = time.monotonic() + int(seconds)
opener = request.build_opener(request.ProxyHandler({}))
while True:
    try:
        opener.open(url, timeout=60).close()
        break
    except OSError as failure:
        # Any other answer than this one is an answer.
        if isinstance(failure, error.HTTPError) and failure.code != 503:
            break
        if time.monotonic() > deadline:
            sys.exit(1)
        time.sleep(0.2)
END
}
