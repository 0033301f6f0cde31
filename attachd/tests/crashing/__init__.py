# SPDX-License-Identifier: Apache-2.0
"""Kills API and manager at every step of every call, and looks at what becomes of it.

nursery.py is the process whose children are API and manager; boundaries.py makes points of what
they do, points.py counts them and kills; site.py starts it all, calls.py has the calls,
runs.py records the points of a call and dies at one, and case.py makes tests of that.
"""
