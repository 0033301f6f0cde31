# SPDX-License-Identifier: Apache-2.0
"""How often a process that serves looks for garbage; called when it is ready to serve."""

import gc

YOUNG = 10_000
"""How many objects are made before the garbage collector looks at them; Python's default is 700.

With requests of many threads under way, most of the 700 are still in use, and looking at them
again and again was a twentieth of the API's work.
"""


def settle() -> None:
    """Have what is there by now, modules and tables above all, not looked at any more.

    What requests make is freed when they end, as ever; this is about objects that refer to each
    other in a circle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
