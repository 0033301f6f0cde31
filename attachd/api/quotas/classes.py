# SPDX-License-Identifier: Apache-2.0
"""Quotas of classes: the one named ``default`` holds for all projects, others for nobody yet."""

from typing import Any

from attachd.api.endpoint import endpoint
from attachd.api.quotas import limits, policy, schema, view
from attachd.db import quotas, types

CLASS = "/os-quota-class-sets/{class_name}"

Body = dict[str, Any]


@endpoint("GET", CLASS, policy=policy.GET_CLASS, doc=view.NAMED_CLASS)
def show(class_name: str) -> Body:
    """Answer the quotas of a class; what is not set in it is what holds by default."""
    return {"quota_class_set": {**_limits(class_name), "id": class_name}}


@endpoint("PUT", CLASS, policy=policy.UPDATE_CLASS, body=schema.UPDATE_CLASS, doc=view.CLASS)
def update(class_name: str, body: Body) -> Body:
    """Set some of the quotas of a class, which there is from then on."""
    known = view.resources(types.names({}))
    wanted = limits.wanted(body["quota_class_set"], "quota class set", known)
    quotas.store_of_class(class_name, wanted)
    return {"quota_class_set": _limits(class_name)}


def _limits(class_name: str) -> dict[str, int]:
    of_all = quotas.of_class(quotas.DEFAULT_CLASS)
    return view.effective(view.resources(types.names({})), of_all, quotas.of_class(class_name))
