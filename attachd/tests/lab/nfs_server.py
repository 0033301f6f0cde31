# SPDX-License-Identifier: Apache-2.0
"""A server of NFS on this machine, for guests that mount its share."""

from pathlib import Path
import socket
import subprocess
from typing import Final
import unittest

from attachd.tests.fixtures import lifetime, processes, requirements
from attachd.tests.wait import wait_until

# The manager changes the files behind the server's back, which must not cache them.
_NFS_SERVER: Final = """\
NFS_CORE_PARAM {{
  NFS_Port = {port}; Bind_addr = 127.0.0.1; Protocols = 4; Enable_NLM = false;
  Enable_RQUOTA = false; Enable_UDP = None;
}}
NFSv4 {{
  Graceless = true; Delegations = false; RecoveryBackend = fs; RecoveryRoot = "{top}/recovery";
  Only_Numeric_Owners = true;
}}
MDCACHE {{ Dir_Chunk = 0; }}
EXPORT {{
  Export_Id = 1; Path = "{top}/export"; Pseudo = /vol; Access_Type = RW; SecType = sys;
  Protocols = 4; Transports = TCP; Squash = No_Root_Squash; Attr_Expiration_Time = 0;
  FSAL {{ Name = VFS; }}
}}
"""


class Server:
    """A server with one share, which is a folder, until the test ends.

    The manager has the folder as its mount: the kernel of this machine may have no NFS.

    :ivar folder: what the server exports
    :ivar port: of the server at 127.0.0.1
    """

    def __init__(self, test: unittest.TestCase) -> None:
        top, self.port = lifetime.temp_dir(test), processes.free_port()
        self.folder, self._mount_point = top / "export", top / "mnt"
        for directory in (self.folder, self._mount_point, top / "recovery"):
            directory.mkdir()
        (top / "conf").write_text(_NFS_SERVER.format(top=top, port=self.port))
        self._test, self._top = test, top
        self._start()
        # Also a server that was started since: before, hosts unmount.
        test.addCleanup(self._stop)
        mount_point = f"{self._mount_point}"
        processes.check_output(["mount", "--bind", f"{self.folder}", mount_point])
        test.addCleanup(processes.check_output, ["umount", "--lazy", mount_point])

    def options(self, address: str) -> dict[str, str | Path]:
        """Return the options of the nfs driver.

        :param address: where hosts reach 127.0.0.1 of this machine
        """
        return {
            "nfs_share": f"{address}:/vol",
            "nfs_mount_point": self._mount_point,
            "nfs_host_mount_options": f"vers=4.2,hard,port={self.port}",
        }

    def restart(self) -> None:
        """Kill the server, and start another one, which has no open files."""
        self._stop()
        self._start()

    def _start(self) -> None:
        tools = [
            requirements.require_tool(self._test, name) for name in ("setpriv", "ganesha.nfsd")
        ]
        options = ["-F", "-f", "conf", "-L", "log", "-p", "pid"]
        with (self._top / "out").open("wb") as output:
            line = [tools[0], "--pdeathsig=KILL", tools[1], *options]
            server = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output, cwd=self._top)
        self._server = server

        def accepts() -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(accepts)

    def _stop(self) -> None:
        self._server.kill()
        self._server.wait()
