# SPDX-License-Identifier: Apache-2.0
"""The served API behind a real Keystone, for tests of what callers may do.

::

    api = guarded.use(self)
    alice = api.keystone.user("alice", "member")
    answer = api.ask("GET", "/volumes", token=api.keystone.token(alice))
"""

from typing import Any
import unittest

from keystoneauth1 import loading

from attachd.api import app, keystone
from attachd.conf import CONF
from attachd.tests import backends
from attachd.tests.functional import keystones, served

_PASSWORD = loading.get_auth_plugin_conf_options("password")
_SERVICE: dict[str, keystones.User] = {}
"""As whom attachd asks a Keystone, by its URL."""


class Api(served.Api):
    """The API as a client sees it.

    :ivar keystone: whose tokens it takes
    """

    keystone: keystones.Keystone


def use(test: unittest.TestCase, real: keystones.Keystone | None = None, **options: Any) -> Api:
    """Serve the API in this process until the test is over.

    :param real: None: the Keystone of this test process
    :param options: of [keystone_authtoken], to be other than usual
    """
    real = real or keystones.shared(test)
    plain = served.use(test)
    configure(test, real, **options)
    api = Api(plain.backend, app.make_app())
    api.keystone = real
    return api


def configure(test: unittest.TestCase, real: keystones.Keystone, **options: Any) -> None:
    """Have this process ask a Keystone until the test is over."""
    if real.url not in _SERVICE:
        _SERVICE[real.url] = real.user("attachd", "service", project="service")
    service = _SERVICE[real.url]
    CONF.register_opts(_PASSWORD, group=keystone.GROUP)
    # One of these options is required, and other tests do not have it.
    test.addCleanup(CONF.unregister_opts, _PASSWORD, group=keystone.GROUP)
    test.addCleanup(CONF.reset)
    backends.override(test, "auth_strategy", "keystone", group="api")
    values = {
        "auth_type": "password",
        "auth_url": real.url,
        "www_authenticate_uri": real.url,
        "username": service.name,
        "password": service.password,
        "user_domain_id": keystones.DOMAIN,
        "project_name": service.project,
        "project_domain_id": keystones.DOMAIN,
        "region_name": keystones.REGION,
        # Long enough for a Keystone that is only slow.
        "http_connect_timeout": 120,
        **options,
    }
    for name, value in values.items():
        backends.override(test, name, value, group=keystone.GROUP)
