#!/usr/bin/env bash
# shellcheck disable=SC1090,SC1091 # files beside it, each checked by itself
# SPDX-License-Identifier: Apache-2.0
# One phase of devstack for the plug-in: run.sh SITE MODE [PHASE], as stack.sh and the others do it.
#
# SITE is a folder with a file "localrc".  Where that names a folder in DEVSTACK_FOLDER, the
# functions are devstack's own; else they are those of functions.sh.
set -o errexit

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SITE=$1
shift
source "$SITE/localrc"

if [[ -n "${DEVSTACK_FOLDER:-}" ]]; then
    source "$HERE/genuine.sh"
else
    set -o nounset
    source "$HERE/systemctl.sh"
    source "$HERE/functions.sh"
fi

run_phase override_defaults
run_phase source
# What only the test sees: the services, and variables of the settings.
(set -o posix && set) >"$SITE/variables"
run_phase "$@"
