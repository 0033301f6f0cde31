# SPDX-License-Identifier: Apache-2.0
"""openstacksdk without authentication, for the tests that use a served API as its clients do."""

from typing import Any
import unittest

import openstack


def storage(test: unittest.TestCase, url: str) -> Any:
    """Return openstacksdk's block storage, closed with the test.

    :param url: of the API, without /v3
    """
    connection = openstack.connect(
        auth_type="none",
        endpoint=f"{url}/v3",
        load_envvars=False,
        load_yaml_config=False,
        app_name="attachd-tests",
    )
    test.addCleanup(connection.close)
    return connection.block_storage
