# SPDX-License-Identifier: Apache-2.0
"""The functions by which shells complete the command line, in these shells."""

import os
from pathlib import Path
import shlex
import shutil
import subprocess
import tempfile
import unittest

from attachd.tests.unit.cli import programs

_NAMES = ("data", "my data", "$(touch made)", "`touch made`", "*", "")


class CompletionTest(unittest.TestCase):
    def complete(self, *words, names=_NAMES):
        """Return what bash completes in a directory that has these names, as attachd has."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        program = folder / "bin" / "attachd"
        program.parent.mkdir()
        program.write_text(shlex.join(("printf", r"%s\n", *names)))
        program.chmod(0o700)
        work = folder / "work"
        for name in names:
            (work / name).mkdir(parents=True, exist_ok=True)
        line = f"COMP_WORDS=(attachd {shlex.join(words)}); COMP_CWORD={len(words)}; _attachd"
        shown = subprocess.run(
            [
                "bash",
                "-c",
                f'{programs.run("complete").out}{line}\nprintf "%s\\n" "${{COMPREPLY[@]}}"',
            ],
            capture_output=True,
            cwd=work,
            env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
            text=True,
            check=True,
        )
        self.assertEqual("", shown.stderr)
        self.assertFalse((work / "made").exists(), words)
        return sorted(shown.stdout.splitlines())

    def test_bash_quotes_names_and_runs_no_command_in_them(self):
        quoted = sorted(["data", r"my\ data", r"\$\(touch\ made\)", r"\`touch\ made\`", r"\*"])
        for words in (
            ("local-detach", ""),
            ("attachment-show", ""),
            ("agent-show", ""),
            ("local-list", "--state-path", ""),
        ):
            self.assertEqual(quoted, sorted(self.complete(*words)), words)

    def test_bash_completes_names_that_begin_with_the_word(self):
        for words in (("local-detach",), ("local-list", "--state-path")):
            self.assertEqual(["data"], self.complete(*words, "da"))
            self.assertEqual([r"my\ data"], self.complete(*words, "my"))
            self.assertEqual([r"\$\(touch\ made\)"], self.complete(*words, "$"))
            self.assertEqual([""], self.complete(*words, "$(touch made)x"))
        self.assertEqual([r"my\ data"], self.complete("local-detach", "my\\ "))

    def test_bash_completes_commands_options_and_values(self):
        done = programs.run("complete")
        self.assertEqual((0, ""), (done.code, done.err))
        for words, expected in (
            (("local-at",), ["local-attach"]),
            (("local-attach", "--mountp"), ["--mountpoint"]),
            (("local-attach", "--mode", ""), ["rw", "ro"]),
            (("attachment-create", "data", "--connect", "T"), ["True"]),
            (("attachment-list", "--format", "js"), ["json"]),
        ):
            line = f"COMP_WORDS=(attachd {shlex.join(words)}); COMP_CWORD={len(words)}; _attachd"
            script = f'{done.out}{line}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
            shown = subprocess.run(
                ["bash", "-c", script], capture_output=True, text=True, check=True
            )
            self.assertEqual((expected, ""), (shown.stdout.split(), shown.stderr))

    def test_zsh_loads_functions_of_bash(self):
        script = programs.run("complete", "--shell", "zsh").out
        loader, _, function = script.partition("\n")
        self.assertEqual("autoload -Uz bashcompinit && bashcompinit", loader)
        self.assertEqual(programs.run("complete").out, function)
        if shutil.which("zsh"):
            subprocess.run(["zsh", "-n"], input=script, text=True, check=True)
