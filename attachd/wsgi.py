# SPDX-License-Identifier: Apache-2.0
"""The API for a WSGI server: ``attachd.wsgi:application``, under uWSGI or Gunicorn.

The configuration is what ATTACHD_CONFIG_FILES names, files separated by colons, else
/etc/attachd/attachd.conf.  It is read when this is imported, so that a mistake in it ends the
server at its start.
"""

from attachd.cmd import api

application = api.make()
