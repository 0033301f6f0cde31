# SPDX-License-Identifier: Apache-2.0
"""The check of identifiers in tools/."""

import contextlib
import io
import unittest

from attachd.tests.fixtures import lifetime, requirements


class CheckIdentifiersTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.check_identifiers = requirements.import_tool(self, "check_identifiers")
        self.folder = lifetime.temp_dir(self)

    def check(self, source, module="module"):
        """Return the exit code and the refused identifiers of a module."""
        (self.folder / f"{module}.py").write_text(source, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = self.check_identifiers.main([str(self.folder)])
        return code, [line.split(": ")[1] for line in printed.getvalue().splitlines()]

    def test_private_words_in_definitions_are_refused_with_standard_term(self):
        for source, name in (
            ("def tell_owner(): pass", "tell_owner"),
            ("class HostDuty: pass", "HostDuty"),
            ("def report(patience): pass", "patience"),
            ("told = 1", "told"),
            ("self._begun_at = 1", "_begun_at"),
            ("for wish in (): pass", "wish"),
            ("OPTIONS = [cfg.IntOpt('nap_seconds')]", "nap_seconds"),
        ):
            with self.subTest(source):
                self.assertEqual((1, [name]), self.check(source))

    def test_private_word_in_name_of_module_is_refused(self):
        self.assertEqual((1, ["caretaker"]), self.check("", module="caretaker"))

    def test_plain_words_are_refused_as_whole_names_only(self):
        self.assertEqual((1, ["mine"]), self.check("mine = 1"))
        self.assertEqual((0, []), self.check("def list_of_ids(at_once): HERE = 'half-way'"))

    def test_words_with_standard_use_are_accepted(self):
        source = (
            "class File:\n    def tell(self): pass\n"
            "def reap_child(guest, nobody, max_age): headroom = heartbeat = gateway = 1\n"
        )
        self.assertEqual((0, []), self.check(source))

    def test_uses_of_foreign_names_are_accepted(self):
        self.assertEqual((0, []), self.check("library.told(patience=library.ways)"))
