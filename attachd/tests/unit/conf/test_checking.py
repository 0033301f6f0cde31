# SPDX-License-Identifier: Apache-2.0
"""Invalid values and unknown names of options in configuration files."""

from importlib import metadata
from pathlib import Path
import unittest
from unittest import mock

from oslo_config import cfg, types

from attachd import conf
from attachd.conf import checking, opts
from attachd.tests.fixtures import lifetime

_GENERATOR = Path(__file__).parents[4] / "etc" / "attachd" / "config-generator.conf"


def wrong_value(option):
    """Return an invalid value of the option; None if each value is valid."""
    kind = option.type
    if isinstance(kind, types.Integer | types.Float):
        return "many" if kind.min is None else f"{kind.min - 1}"
    if isinstance(kind, types.Boolean):
        return "perhaps"
    if isinstance(kind, types.URI):
        return "ftp://127.0.0.1"
    if isinstance(kind, types.HostAddress):
        return "two words"
    if isinstance(kind, types.String) and (kind.choices or kind.regex):
        return "anything else"
    return None


class CheckingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.file = lifetime.temp_dir(self) / "attachd.conf"

    def read(self, text):
        """Return a configuration that has read only this file."""
        self.file.write_text(text, encoding="utf-8")
        made = cfg.ConfigOpts()
        for group in conf.GROUPS:
            named = None if group.GROUP == "DEFAULT" else group.GROUP
            made.register_opts(group.OPTIONS, group=named)
        made(["--config-file", str(self.file)], project="attachd", use_env=False)
        return made

    def find_unknown_options(self, text, environment=None):
        return checking.find_unknown_options(self.read(text), environment or {})


class ValuesTest(CheckingTest):
    def test_check_values_names_group_and_option_of_invalid_value(self):
        looked_at = 0
        for group in conf.GROUPS:
            for option in group.OPTIONS:
                wrong = wrong_value(option)
                if wrong is None:
                    continue
                with self.subTest(group=group.GROUP, option=option.name, value=wrong):
                    read = self.read(f"[{group.GROUP}]\n{option.dest} = {wrong}\n")
                    name = rf"^\[{group.GROUP}\]{option.dest}: "
                    with self.assertRaisesRegex(cfg.ConfigFileValueError, name):
                        checking.check_values(read)
                    looked_at += 1
        self.assertGreater(looked_at, 40)

    def test_check_values_names_backend_of_invalid_driver_option(self):
        listed = {group.name: options for group, options in opts.list_opts()}
        for driver in ("file", "tgt", "fake"):
            for option in listed[driver]:
                wrong = wrong_value(option)
                if wrong is None:
                    continue
                with self.subTest(driver=driver, option=option.name):
                    read = self.read(f"[shelf]\n{option.dest} = {wrong}\n")
                    read.register_opt(option, group="shelf")
                    name = rf"^\[shelf\]{option.dest}: "
                    with self.assertRaisesRegex(cfg.ConfigFileValueError, name):
                        checking.check_values(read, "shelf")

    def test_check_values_accepts_defaults(self):
        checking.check_values(self.read(""))


class TransportUrlTest(CheckingTest):
    def url(self, text):
        return checking.parse_transport_url(self.read(f"[DEFAULT]\ntransport_url = {text}\n"))

    def test_parse_transport_url_of_valid_option_is_parsed(self):
        self.assertEqual("rabbit", checking.parse_transport_url(self.read("")).transport)
        self.assertEqual("inprocess", self.url("inprocess://").transport)
        self.assertEqual("kombu", self.url("kombu://me:it@mq1/v").transport)
        self.assertEqual("v", self.url("rabbit://me:it@mq1:5672,me:it@mq2:5672/v").virtual_host)

    def test_parse_transport_url_of_usual_transport_loads_no_entry_points(self):
        installed = metadata.entry_points(group="oslo.messaging.drivers").names
        self.assertLessEqual(checking._USUAL, installed)
        with mock.patch.object(checking.metadata, "entry_points", side_effect=AssertionError):
            for item in checking._USUAL:
                self.assertEqual(item, self.url(f"{item}://").transport)

    def test_parse_transport_url_of_invalid_option_raises_error_naming_option(self):
        for text, words in (
            ("nonsense", "No scheme"),
            ("rabit://me:it@127.0.0.1/", "'rabit' is none of .*rabbit"),
            ("rabbit://me:it@127.0.0.1:port/", "is no URL"),
            ("rabbit://me:it@[127.0.0.1/", "is no URL"),
        ):
            found = rf"^\[DEFAULT\]transport_url.*{words}"
            with self.subTest(text), self.assertRaisesRegex(cfg.ConfigFileValueError, found):
                self.url(text)

    def test_parse_transport_url_error_has_no_password(self):
        with self.assertRaises(cfg.ConfigFileValueError) as caught:
            self.url("rabbit://me:half-of/a-secret@127.0.0.1/")
        self.assertNotIn("half-of", str(caught.exception))
        self.assertIsNone(caught.exception.__cause__)


class UnknownOptionsTest(CheckingTest):
    def only(self, text, environment=None):
        (found,) = self.find_unknown_options(text, environment)
        return found

    def test_known_options_are_not_reported(self):
        self.assertEqual([], self.find_unknown_options("[manager]\nworkers = 2\n"))
        text = (
            # Options of libraries, some of which are registered later, and a former name.
            "[DEFAULT]\ndebug = true\ngraceful_shutdown_timeout = 30\nrpc_response_timeout = 9\n"
            "logdir = /nowhere\nenabled_backends = shelf\n"
            "[database]\nconnection = sqlite://\nmysql_sql_mode = TRADITIONAL\n"
            "[oslo_messaging_rabbit]\nrabbit_quorum_queue = true\n"
            "[keystone_authtoken]\napplication_credential_id = x\n"
            "[shelf]\ndriver = file\nfile_folder = /nowhere\n"
        )
        self.assertEqual([], self.find_unknown_options(text))

    def test_libraries_are_loaded_only_for_unknown_names(self):
        asked = []

        class Library:
            def __init__(self, name, *options):
                self.name = name
                self._options = [cfg.StrOpt(option) for option in options]

            def load(self):
                asked.append(self.name)
                return lambda: [("shelf", self._options)]

        points = [Library("oslo.db", "late"), Library("attachd", "early"), Library("other", "no")]
        with mock.patch.object(checking.metadata, "entry_points", return_value=points):
            for names, expected in (
                ([], []),
                (["early"], ["attachd"]),
                (["early", "late"], ["attachd", "oslo.db"]),
                (["no"], ["attachd", "oslo.db"]),
            ):
                asked.clear()
                text = "".join(f"{item} = 1\n" for item in names)
                found = self.find_unknown_options(f"[manager]\nworkers = 2\n[shelf]\n{text}")
                self.assertEqual(expected, asked)
                self.assertEqual(["no"] * ("no" in names), [item.name for item in found])

    def test_options_of_backend_with_unknown_driver_are_reported(self):
        found = self.only("[shelf]\ndriver = nonesuch\nfile_folder = /nowhere\n")
        self.assertEqual("file_folder", found.name)

    def test_option_driver_of_other_group_is_reported(self):
        self.assertEqual("driver", self.only("[oslo_policy]\ndriver = nonesuch\n").name)

    def test_misspelled_option_is_reported_with_suggestion(self):
        found = self.only("[manager]\nwokers = 2\n")
        self.assertEqual(
            checking.UnknownOption(str(self.file), "manager", "wokers", "[manager]workers"), found
        )
        self.assertEqual(
            f"{self.file}: there is no option [manager]wokers, so it does nothing. "
            "Did you mean [manager]workers?",
            str(found),
        )

    def test_option_in_wrong_group_is_reported_with_right_group(self):
        self.assertEqual("[rpc]attach_timeout", self.only("[api]\nattach_timeout = 2\n").nearest)

    def test_unknown_option_without_similar_name_is_reported(self):
        found = self.only("[api]\nzzz = 2\n")
        self.assertIsNone(found.nearest)
        self.assertTrue(str(found).endswith("does nothing."), found)

    def test_option_of_other_driver_is_reported(self):
        text = "[shelf]\ndriver = file\ntgt_timeout = 3\nfile_foldr = /nowhere\n"
        self.assertEqual(
            ["[tgt]tgt_timeout", "[shelf]file_folder"],
            [unknown_option.nearest for unknown_option in self.find_unknown_options(text)],
        )

    def test_option_driver_of_library_is_known(self):
        text = "[oslo_messaging_notifications]\ndriver = messagingv2\ntopics = a,b\n"
        self.assertEqual([], self.find_unknown_options(text))
        self.assertEqual("retyr", self.only(f"{text}retyr = 1\n").name)

    def test_auth_section_of_keystone_is_known(self):
        text = "[keystone_authtoken]\nauth_section = ours\n[ours]\nauth_url = http://k\n"
        self.assertEqual([], self.find_unknown_options(text))

    def test_options_of_group_with_auth_type_are_known(self):
        text = "[nova]\nauth_type = password\nauth_url = http://k\n"
        self.assertEqual([], self.find_unknown_options(text))
        self.assertEqual("auth_url", self.only("[nova]\nauth_url = http://k\n").name)

    def test_unknown_group_is_reported_once_with_suggestion(self):
        found = self.only("[mangaer]\nworkers = 2\nmessage_ttl = 3\n")
        self.assertEqual(("mangaer", None, "[manager]"), (found.group, found.name, found.nearest))
        self.assertIn("no group of options [mangaer]", str(found))

    def test_groups_of_config_sources_are_known(self):
        text = "[DEFAULT]\nconfig_source = elsewhere\n[elsewhere]\ndriver = remote_file\nuri = x\n"
        read = self.read(text.replace("config_source", "#config_source"))
        self.assertTrue(checking.find_unknown_options(read, {}))
        read.set_override("config_source", ["elsewhere"])
        self.assertEqual([], checking.find_unknown_options(read, {}))

    def test_unknown_environment_variables_are_reported(self):
        clients = {"OS_AUTH_URL": "x", "HOME": "/", "OS_MANAGER__WORKERS": "2"}
        self.assertEqual([], self.find_unknown_options("", clients))
        found = self.only("", {**clients, "OS_DATABASE__CONECTION": "x"})
        self.assertEqual("OS_DATABASE__CONECTION", found.place)
        self.assertEqual("[database]connection", found.nearest)

    def test_options_in_configuration_directory_are_reported(self):
        more = self.file.parent / "more"
        more.mkdir()
        (more / "b.conf").write_text("[api]\nmax_limmit = 2\n", encoding="utf-8")
        (more / "a.txt").write_text("[api]\nmax_limits = 2\n", encoding="utf-8")
        read = self.read("")
        read(["--config-file", str(self.file), "--config-dir", str(more)], use_env=False)
        (found,) = checking.find_unknown_options(read, {})
        self.assertEqual((str(more / "b.conf"), "max_limmit"), (found.place, found.name))

    def test_libraries_of_sample_configuration_are_known(self):
        lines = _GENERATOR.read_text(encoding="utf-8").splitlines()
        named = [line.removeprefix("namespace = ") for line in lines if "namespace = " in line]
        self.assertLessEqual(set(named), set(checking._LIBRARIES))
