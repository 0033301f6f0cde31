# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# attachd in devstack: install, configure, init, start, stop, clean up; called by the last lines.
#
# What can be set is in settings.  Every function may be called again; a second attachd_init
# begins with an empty database, as devstack does it with all services.

_XTRACE_ATTACHD=$(set +o | grep xtrace)
set +o xtrace

# Asked by is_service_enabled attachd: whether anything of it runs on this host.
function is_attachd_enabled {
    [[ ",$ENABLED_SERVICES" == *,attachd-* ]]
}

# -- Install

function attachd_install {
    # devstack configures tokens to be kept in memcached.
    local extras=memcached
    if is_service_enabled attachd-agent; then
        extras+=,host
    fi
    setup_develop "$ATTACHD_DIR" "$extras"
    if is_service_enabled attachd-tgtd; then
        attachd_install_tgtd
    fi
    if is_service_enabled attachd-agent; then
        if is_fedora; then
            install_package iscsi-initiator-utils
        else
            install_package open-iscsi
        fi
    fi
}

function attachd_install_tgtd {
    local package=tgt unit=tgt
    if is_fedora; then
        package=scsi-target-utils
        unit=tgtd
    fi
    install_package "$package"
    # The package's own tgtd runs as root, takes the port, and belongs to Cinder if that is here.
    if [[ "$ATTACHD_REPLACE_CINDER" == True ]]; then
        stop_service "$unit" || true
        $SYSTEMCTL disable "$unit" || true
    fi
}

# -- Configure

function attachd_configure {
    sudo install -d -o "$STACK_USER" -m 0750 "$ATTACHD_CONF_DIR"
    sudo install -d -o "$STACK_USER" -m 0700 "$ATTACHD_STATE_DIR"
    if is_service_enabled attachd-api attachd-manager; then
        attachd_configure_service
    fi
    if is_service_enabled attachd-api; then
        attachd_configure_api
    fi
    if is_service_enabled attachd-manager; then
        attachd_configure_backends
    fi
    if is_service_enabled attachd-agent; then
        attachd_configure_agent
    fi
    if is_service_enabled nova && [[ "$ATTACHD_REPLACE_CINDER" == True ]]; then
        attachd_configure_nova
    fi
}

# An empty file that is to hold passwords: its path.
function attachd_new_file {
    rm -f "$1"
    (umask 0077 && : >"$1")
}

# What API and manager share.
function attachd_configure_service {
    attachd_new_file "$ATTACHD_CONF"
    iniset "$ATTACHD_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    iniset "$ATTACHD_CONF" DEFAULT state_path "$ATTACHD_STATE_DIR"
    iniset "$ATTACHD_CONF" database connection "$(attachd_database_url)"
    iniset_rpc_backend attachd "$ATTACHD_CONF" DEFAULT "$ATTACHD_VHOST"
    iniset_rpc_backend attachd "$ATTACHD_CONF" agent "$ATTACHD_AGENT_VHOST"
    # The account of all hosts is the same, and all may be trusted.
    iniset "$ATTACHD_CONF" agent allow_new True
    setup_logging "$ATTACHD_CONF"
}

function attachd_database_url {
    local url
    url=$(database_connection_url "$ATTACHD_DATABASE")
    # Names have characters that MySQL's "utf8" has not.
    url=${url/charset=utf8mb4/charset=utf8}
    echo "${url/charset=utf8/charset=utf8mb4}"
}

function attachd_configure_api {
    iniset "$ATTACHD_CONF" api auth_strategy keystone
    iniset "$ATTACHD_CONF" api public_endpoint "$ATTACHD_URL"
    configure_keystone_authtoken_middleware \
        "$ATTACHD_CONF" "$ATTACHD_USER" keystone_authtoken block-storage
    iniset "$ATTACHD_CONF" keystone_authtoken region_name "$REGION_NAME"
    # Nova is asked who uses a volume, if it is in the catalogue.
    iniset "$ATTACHD_CONF" nova region_name "$REGION_NAME"
    if is_service_enabled nova; then
        iniset "$ATTACHD_CONF" nova auth_section keystone_authtoken  # for its external events
    fi

    local listen=""
    if [[ -z "$ATTACHD_PATH" ]]; then
        listen=$ATTACHD_LISTEN_ADDRESS:$ATTACHD_PORT
    fi
    write_uwsgi_config \
        "$ATTACHD_UWSGI_CONF" attachd.wsgi:application "$ATTACHD_PATH" "$listen" attachd-api
    iniset "$ATTACHD_UWSGI_CONF" uwsgi env "ATTACHD_CONFIG_FILES=$ATTACHD_CONF"
    iniset "$ATTACHD_UWSGI_CONF" uwsgi need-app true
    iniset "$ATTACHD_UWSGI_CONF" uwsgi threads "$ATTACHD_THREADS"
    # As in etc/attachd/uwsgi.ini, which says why.
    iniset "$ATTACHD_UWSGI_CONF" uwsgi post-buffering 8192
    iniset "$ATTACHD_UWSGI_CONF" uwsgi socket-timeout 90
    iniset "$ATTACHD_UWSGI_CONF" uwsgi http-timeout 90
}

function attachd_configure_backends {
    local backend driver name names=""
    for backend in ${ATTACHD_BACKENDS//,/ }; do
        driver=${backend%%:*}
        name=${backend#*:}
        "attachd_configure_backend_$driver" "$name"
        names+=,$name
    done
    iniset "$ATTACHD_CONF" DEFAULT enabled_backends "${names#,}"
}

# iSCSI from sparse files, by a tgtd that all these backends share.
function attachd_configure_backend_tgt {
    iniset "$ATTACHD_CONF" "$1" driver tgt
    iniset "$ATTACHD_CONF" "$1" tgt_volumes_dir "$ATTACHD_STATE_DIR/$1"
    iniset "$ATTACHD_CONF" "$1" tgt_portal "$ATTACHD_TGT_ADDRESS:$ATTACHD_TGT_PORT"
    iniset "$ATTACHD_CONF" "$1" tgt_control_socket "$ATTACHD_TGT_SOCKET"
}

# Files of this host, for servers on this host.
function attachd_configure_backend_file {
    iniset "$ATTACHD_CONF" "$1" driver file
    # Making them would take a manager that is root.
    iniset "$ATTACHD_CONF" "$1" file_loop_devices never
}

# No storage at all.
function attachd_configure_backend_fake {
    iniset "$ATTACHD_CONF" "$1" driver fake
}

function attachd_configure_agent {
    attachd_new_file "$ATTACHD_AGENT_CONF"
    iniset "$ATTACHD_AGENT_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    iniset_rpc_backend attachd "$ATTACHD_AGENT_CONF" DEFAULT "$ATTACHD_AGENT_VHOST"
    iniset "$ATTACHD_AGENT_CONF" agent host "$ATTACHD_AGENT_HOST"
    iniset "$ATTACHD_AGENT_CONF" agent state_path "$ATTACHD_STATE_DIR/host"
    setup_logging "$ATTACHD_AGENT_CONF"
}

# What lib/nova does only if Cinder is enabled.
function attachd_configure_nova {
    configure_keystoneauth "$NOVA_CONF" nova cinder
    iniset "$NOVA_CONF" cinder os_region_name "$ATTACHD_REGION_NAME"
    if is_service_enabled tls-proxy; then
        iniset "$NOVA_CONF" cinder cafile "$SSL_BUNDLE_FILE"
    fi
}

# What lib/tempest has turned off as Cinder is not enabled, and what attachd has not.
function attachd_configure_tempest {
    local feature
    iniset "$TEMPEST_CONFIG" service_available cinder True
    iniset "$TEMPEST_CONFIG" volume catalog_type block-storage
    iniset "$TEMPEST_CONFIG" volume region "$ATTACHD_REGION_NAME"
    iniset "$TEMPEST_CONFIG" volume vendor_name attachd
    iniset "$TEMPEST_CONFIG" volume storage_protocol iSCSI
    for feature in backup snapshot manage_snapshot extend_attached_volume; do
        iniset "$TEMPEST_CONFIG" volume-feature-enabled "$feature" False
    done
    iniset "$TEMPEST_CONFIG" volume-feature-enabled clone True
    iniset "$TEMPEST_CONFIG" volume-feature-enabled manage_volume True
    if [[ "$ATTACHD_MULTIATTACH_TYPE" != none ]]; then
        iniset "$TEMPEST_CONFIG" volume volume_type_multiattach "$ATTACHD_MULTIATTACH_TYPE"
        iniset "$TEMPEST_CONFIG" compute-feature-enabled volume_multiattach True
    fi
}

# -- Init

function attachd_init {
    if is_service_enabled rabbit; then
        rpc_backend_add_vhost "$ATTACHD_VHOST"
        rpc_backend_add_vhost "$ATTACHD_AGENT_VHOST"
    fi
    # Where the database is, and nowhere else: other hosts of this cloud use it too.
    # shellcheck disable=SC2086 # a list of names
    if is_service_enabled $DATABASE_BACKENDS; then
        recreate_database "$ATTACHD_DATABASE"
        "$ATTACHD_BIN_DIR/attachd-manage" --config-file "$ATTACHD_CONF" db sync
    fi
    if is_service_enabled attachd-api; then
        attachd_create_accounts
    fi
}

# The user looks at other users' tokens, for which the role service will do.
function attachd_create_accounts {
    create_service_user "$ATTACHD_USER"
    if [[ "$ATTACHD_REGION_NAME" != "$REGION_NAME" ]]; then
        attachd_create_region
    fi
    get_or_create_service attachd block-storage "Volumes and their attachments"
    get_or_create_endpoint block-storage "$ATTACHD_REGION_NAME" \
        "$ATTACHD_URL/v3" "$ATTACHD_URL/v3" "$ATTACHD_URL/v3"
}

# devstack has no function for it, and one for endpoints that fails in a region which is not there.
function attachd_create_region {
    local -a client=(openstack --os-cloud devstack-system-admin)
    if ! "${client[@]}" region show "$ATTACHD_REGION_NAME" >/dev/null 2>&1; then
        "${client[@]}" region create "$ATTACHD_REGION_NAME"
    fi
    # Clients look for Keystone in the region that they are to use.
    get_or_create_endpoint identity "$ATTACHD_REGION_NAME" "$KEYSTONE_SERVICE_URI"
}

# -- Start

function attachd_start {
    if is_service_enabled attachd-tgtd; then
        attachd_start_tgtd
    fi
    run_process attachd-manager "$ATTACHD_BIN_DIR/attachd-manager --config-file $ATTACHD_CONF"
    if is_service_enabled attachd-api; then
        run_process attachd-api \
            "$(type -P uwsgi) --procname-prefix attachd-api --ini $ATTACHD_UWSGI_CONF"
        if ! wait_for_service "$SERVICE_TIMEOUT" "$ATTACHD_URL/healthcheck"; then
            die $LINENO "attachd-api did not start"
        fi
        attachd_create_type
    fi
    run_process attachd-agent \
        "$ATTACHD_BIN_DIR/attachd-agent --config-file $ATTACHD_AGENT_CONF" root root
}

# tgtd has to be of the same user as the manager.
function attachd_start_tgtd {
    local unit=$SYSTEMD_DIR/devstack@attachd-tgtd.service
    # It ends by no other signal; unstack.sh would wait for five minutes.
    iniset -sudo "$unit" Service KillSignal SIGKILL
    # What a killed one leaves keeps the next one from starting.
    iniset -sudo "$unit" Service ExecStartPre \
        "/bin/rm -f $ATTACHD_TGT_SOCKET.0 $ATTACHD_TGT_SOCKET.0.lock"
    iniset -sudo "$unit" Service LimitNOFILE 1048576
    run_process attachd-tgtd \
        "$(attachd_tgtd) --foreground --iscsi portal=$ATTACHD_TGT_ADDRESS:$ATTACHD_TGT_PORT" \
        "" "" "TGT_IPC_SOCKET=$ATTACHD_TGT_SOCKET"
}

function attachd_tgtd {
    PATH=$PATH:/usr/local/sbin:/usr/sbin type -P tgtd
}

function attachd_create_type {
    if [[ "$ATTACHD_MULTIATTACH_TYPE" == none ]]; then
        return
    fi
    if ! attachd_client volume type show "$ATTACHD_MULTIATTACH_TYPE" >/dev/null 2>&1; then
        attachd_client volume type create --property multiattach="<is> True" \
            "$ATTACHD_MULTIATTACH_TYPE"
    fi
}

# openstack as an administrator, in the region of attachd, which no cloud of clouds.yaml has.
function attachd_client {
    env -u OS_CLOUD OS_AUTH_TYPE=password OS_AUTH_URL="$KEYSTONE_SERVICE_URI" \
        OS_IDENTITY_API_VERSION=3 OS_USERNAME=admin OS_PASSWORD="$ADMIN_PASSWORD" \
        OS_USER_DOMAIN_ID=default OS_PROJECT_NAME=admin OS_PROJECT_DOMAIN_ID=default \
        OS_REGION_NAME="$ATTACHD_REGION_NAME" openstack "$@"
}

# -- Stop

function attachd_stop {
    local service
    for service in attachd-agent attachd-api attachd-manager attachd-tgtd; do
        stop_process "$service"
    done
}

# -- Clean up

function attachd_cleanup {
    attachd_drop_database
    if is_service_enabled rabbit; then
        # clean.sh has stopped the server, and removes it with all that it keeps.
        sudo rabbitmqctl delete_vhost "$ATTACHD_VHOST" || true
        sudo rabbitmqctl delete_vhost "$ATTACHD_AGENT_VHOST" || true
    fi
    if [[ -n "$ATTACHD_PATH" ]]; then
        sudo rm -f "$(apache_site_config_for attachd-api)"
        remove_uwsgi_config "$ATTACHD_UWSGI_CONF" attachd-api
    fi
    sudo rm -f "$SYSTEMD_DIR"/devstack@attachd-{agent,api,manager,tgtd}.service
    $SYSTEMCTL daemon-reload
    sudo rm -rf "${ATTACHD_CONF_DIR:?}" "${ATTACHD_STATE_DIR:?}"
}

# devstack has no function for it.
function attachd_drop_database {
    local statement="DROP DATABASE IF EXISTS $ATTACHD_DATABASE"
    # Where the server is gone already, so is the database.
    case "${DATABASE_TYPE:-}" in
        mysql)
            MYSQL_PWD=$DATABASE_PASSWORD mysql -u"${DATABASE_USER:-root}" \
                -h"${MYSQL_HOST:-$SERVICE_LOCAL_HOST}" -e "$statement" || true
            ;;
        postgresql)
            PGPASSWORD=$DATABASE_PASSWORD psql -U"${DATABASE_USER:-root}" \
                -h"${DATABASE_HOST:-$SERVICE_LOCAL_HOST}" -dtemplate1 -c "$statement" || true
            ;;
    esac
}

# -- Called by devstack: source plugin.sh MODE [PHASE]

if is_service_enabled attachd; then
    case "$1 ${2:-}" in
        "stack install")
            echo_summary "Installing attachd"
            attachd_install
            ;;
        "stack post-config")
            echo_summary "Configuring attachd"
            attachd_configure
            ;;
        "stack extra")
            echo_summary "Starting attachd"
            attachd_init
            attachd_start
            ;;
        "stack test-config")
            if is_service_enabled tempest && [[ "$ATTACHD_REPLACE_CINDER" == True ]]; then
                attachd_configure_tempest
            fi
            ;;
        "unstack ")
            attachd_stop
            ;;
        "clean ")
            attachd_cleanup
            ;;
    esac
fi

$_XTRACE_ATTACHD
