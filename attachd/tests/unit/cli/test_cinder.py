# SPDX-License-Identifier: Apache-2.0
"""The commands as an extension of the cinder client."""

import argparse
import contextlib
import io
import sys
import types
import unittest
from unittest import mock

from cinderclient.contrib import noauth
from keystoneauth1 import session as sessions
from keystoneauth1 import token_endpoint

from attachd import exception
from attachd.cli import cinder, options


class OptionsTest(unittest.TestCase):
    def test_commands_have_options_for_cinderclient(self):
        for command, definitions in (
            (cinder.do_local_attach, options.ATTACH),
            (cinder.do_local_detach, options.DETACH),
            (cinder.do_get_connector, options.GET_CONNECTOR),
            (cinder.do_local_list, options.LIST),
            (cinder.do_local_restore, options.HOST),
        ):
            parser = argparse.ArgumentParser(add_help=False)
            for names, settings in command.arguments:
                parser.add_argument(*names, **settings)
            known = {name for option in definitions for name in option.names}
            self.assertLessEqual(
                {name for name in known if name[0] == "-"}, set(parser._option_string_actions)
            )
            self.assertTrue(command.__doc__)


class CloudTest(unittest.TestCase):
    def client(self, auth):
        session = sessions.Session(auth=auth)
        adapter = mock.Mock(session=session)
        adapter.get_endpoint.return_value = "http://127.0.0.1:8776/v3/p"
        return types.SimpleNamespace(client=adapter)

    def test_cloud_uses_session_and_endpoint_of_cinder(self):
        client = self.client(token_endpoint.Token("http://127.0.0.1:1/v3", "t0ken"))
        cloud = cinder.cloud(client)
        self.assertIs(client.client.session, cloud.session)
        self.assertEqual("http://127.0.0.1:8776/v3/p", cloud.config.get_endpoint("block-storage"))

    def test_cloud_without_authentication_has_discovery_cache(self):
        plugin = noauth.CinderNoAuthPlugin("u", "p", endpoint="http://127.0.0.1:8776/v3")
        self.assertFalse(hasattr(plugin, "_discovery_cache"), "cinderclient has mended it")
        cloud = cinder.cloud(self.client(plugin))
        self.assertEqual({}, cloud.session.auth._discovery_cache)


class RenameCommandsTest(unittest.TestCase):
    def test_command_of_other_extension_is_renamed(self):
        other = types.ModuleType("other_cinderclient_ext")
        other.do_local_attach = print
        own = {"__name__": "our_cinderclient_ext", "do_local_attach": len, "do_local_list": max}
        with mock.patch.dict(sys.modules, {other.__name__: other}):
            cinder.rename_duplicates(own)
        self.assertEqual(
            {
                "__name__": "our_cinderclient_ext",
                "do_attachd_local_attach": len,
                "do_local_list": max,
            },
            own,
        )

    def test_commands_without_other_extension_keep_names(self):
        own = {"__name__": "our_cinderclient_ext", "do_local_attach": len}
        ours = types.ModuleType("our_cinderclient_ext")
        vars(ours).update(own)
        others = {name: None for name in sys.modules if name.endswith(cinder.ENDING)}
        with mock.patch.dict(sys.modules, {**others, ours.__name__: ours}):
            cinder.rename_duplicates(own)
        self.assertIn("do_local_attach", own)


class PrintTest(unittest.TestCase):
    def test_local_restore_with_failure_prints_table_and_raises(self):
        found = [{"volume_id": "v1", "error": "no route to host", "owner": "local"}]
        with (
            mock.patch.object(cinder, "cloud"),
            mock.patch.object(cinder.local, "restore", return_value=found),
            contextlib.redirect_stdout(io.StringIO()) as printed,
            self.assertRaises(exception.HostError),
        ):
            cinder.do_local_restore(None, argparse.Namespace(watch=False))
        *table, error = printed.getvalue().splitlines()
        self.assertNotIn("no route to host", "".join(table))
        self.assertEqual("v1: no route to host", error)

    def test_local_list_prints_table(self):
        found = [{"volume_id": "v1", "attachment_id": "a1", "path": "/dev/sdb", "owner": "local"}]
        with (
            mock.patch.object(cinder, "cloud"),
            mock.patch.object(cinder.local, "attached", return_value=found),
            mock.patch("builtins.print") as printed,
        ):
            cinder.do_local_list(None, argparse.Namespace(long=True, watch=False))
        (table,) = printed.call_args.args
        self.assertRegex(table, r"\| v1 +\| a1 +\| /dev/sdb \|.*\| local \|")
