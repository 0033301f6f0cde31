# shellcheck shell=bash disable=SC1090,SC1091,SC2034 # devstack's own files, and what they read
# SPDX-License-Identifier: Apache-2.0
# devstack's own functions, from the folder $DEVSTACK_FOLDER, on a machine that it did not set up.
#
# OFFLINE keeps them from installing; what they would set up of systemd is left out.

function sudo {
    if [[ "$*" == *tmpfiles* || "$1" == systemctl || "$1" == */systemctl ]]; then
        echo "sudo $*" >>"$SITE/calls"
    else
        "$@"
    fi
}

TOP_DIR=$DEVSTACK_FOLDER
FILES=$TOP_DIR/files
OFFLINE=True
GLOBAL_VENV=True
DEVSTACK_VENV=$(dirname "$(dirname "$(type -P attachd-manage)")")
LOG_COLOR=False
MYSQL_GATHER_PERFORMANCE=False

source "$TOP_DIR/functions"
source "$TOP_DIR/stackrc"
# As stackrc does it with the localrc in its own folder, where nothing is to be written.
source "$SITE/localrc"
for lib in apache tls keystone database rpc_backend; do
    source "$TOP_DIR/lib/$lib"
done
# lib/keystone has its own, behind Apache; memcached and constraints are not here.
source "$SITE/localrc"
MEMCACHE_SERVERS=
REQUIREMENTS_DIR=
source "$HERE/systemctl.sh"
initialize_database_backends
define_database_baseurl
enable_plugin attachd file:///nowhere
GITDIR["attachd"]=$ATTACHD_DIR
