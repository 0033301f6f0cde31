# SPDX-License-Identifier: Apache-2.0
"""What there is of a volume, sorted."""

from attachd.api.legacy.there import There
from attachd.tests import rows
from attachd.tests.unit.api.legacy import case


class ThereTest(case.Case):
    def test_each_row_is_where_it_belongs(self):
        self.volume_id = rows.add_volume(multiattach=True)["id"]
        failed = rows.add_attachment(self.volume_id, "connect_failed")["id"]
        rows.add_attachment(self.volume_id, "held")
        connection = self.connect()
        self.attach()
        there = There.of(self.volume_id)
        (attached,) = [row["id"] for row in there.used]
        self.assertEqual([failed, attached], [row["id"] for row in there.attachments])
        self.assertEqual([connection], [row["id"] for row in there.connections])
        self.assertEqual([], list(there.holds), "os-attach has used it")
        self.assertNotIn("connector", there.connections[0])
