# SPDX-License-Identifier: Apache-2.0
"""The errors about volume types and QoS specs; everybody finds them in exception.py."""

from attachd.exception_roots import AttachdError, BadRequest, Conflict, NotFound


class VolumeTypeNotFound(NotFound):
    """There is no such volume type for this project."""

    msg_fmt = "Volume type %(volume_type_id)s could not be found."


class TypeExists(Conflict):
    """A volume type of that name exists."""

    msg_fmt = "Volume Type %(name)s already exists."


class TypeInUse(BadRequest):
    """Volumes still have this type."""

    msg_fmt = (
        "Volume Type %(volume_type_id)s deletion is not allowed with volumes present with the "
        "type."
    )


class TypeIsDefault(BadRequest):
    """Volumes that are created without a type get this one."""

    msg_fmt = "The volume type %(volume_type_id)s is a default volume type and cannot be deleted."


class InvalidVolumeType(BadRequest):
    """This cannot be done with this volume type."""

    msg_fmt = "Invalid volume type: %(reason)s"


class TypeAccessExists(Conflict):
    """The project has access to the volume type already."""

    msg_fmt = (
        "Volume type access for %(volume_type_id)s / %(project_id)s combination already exists."
    )


class TypeAccessNotFound(NotFound):
    """The project has no access to the volume type."""

    msg_fmt = "Volume type access not found for %(volume_type_id)s / %(project_id)s combination."


class DefaultTypeNotFound(NotFound):
    """The project has no default volume type of its own."""

    msg_fmt = "Default type for project %(project_id)s not found."


class DefaultTypeMissing(AttachdError):
    """The operator has promised a default volume type and not created it: name another one."""

    code = 503
    msg_fmt = (
        "The default volume type of this service, %(name)s, does not exist. Name a volume type, "
        "or have the operator create this one or correct default_volume_type."
    )


class QosSpecsNotFound(NotFound):
    """There are no such QoS specs."""

    msg_fmt = "No such QoS spec %(qos_specs_id)s."


class QosSpecsExist(Conflict):
    """There are QoS specs of that name."""

    msg_fmt = "QoS Specs %(name)s already exists."


class QosSpecsInUse(BadRequest):
    """Volume types have these QoS specs: disassociate them, or delete with force."""

    msg_fmt = "Qos specs still in use."
