# SPDX-License-Identifier: Apache-2.0
"""What a real Cinder answers, recorded, and how to ask for it again; see the contributors' page
on recorded answers.  Read by test_recorded_answers and by tools/compare_answers.py.
"""
