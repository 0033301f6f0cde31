#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the accounts that the tests use on the database servers of this machine, as root.
#
# OpenStack's CI runs a script of this name before it runs tests, and its projects name both user
# and password openstack_citest.  The account has every right: do not make it where others can
# reach the servers.
set -uo pipefail

user=openstack_citest
password=openstack_citest

mariadb --protocol=socket <<SQL || echo "$user was not made in MariaDB: its tests will not run"
CREATE USER IF NOT EXISTS $user@localhost IDENTIFIED BY '$password';
CREATE USER IF NOT EXISTS $user@127.0.0.1 IDENTIFIED BY '$password';
GRANT ALL PRIVILEGES ON *.* TO $user@localhost WITH GRANT OPTION;
GRANT ALL PRIVILEGES ON *.* TO $user@127.0.0.1 WITH GRANT OPTION;
SQL

(cd / && setpriv --reuid=postgres --regid=postgres --init-groups psql -q -v ON_ERROR_STOP=1 postgres) <<SQL ||
DO \$\$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '$user') THEN
        CREATE ROLE $user LOGIN SUPERUSER PASSWORD '$password';
    END IF;
END \$\$;
SQL
    echo "$user was not made in PostgreSQL: its tests will not run"
exit 0
