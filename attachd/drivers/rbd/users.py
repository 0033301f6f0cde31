# SPDX-License-Identifier: Apache-2.0
"""Names and capabilities of the cephx users of attachments; for the rbd driver.

A user may reach the objects of one image and no others.  The capabilities are those that librbd,
QEMU and the kernel need to open an image, of which the first three reach no data.

Source: Ceph's documentation, User Management; osd/OSDCap.h for the grammar.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import re
from typing import Final, NamedTuple

from attachd import exception
from attachd.drivers.base import AccessMode

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME: Final = re.compile(r"pool=(\S+) object_prefix (?:rbd_id|withdrawn)\.([^\s,]+)")
_DATA: Final = re.compile(r"object_prefix rbd_data\.([^\s,.]+)\.")

_NONCE: Final = "|".join(
    (
        *("[1-9][0-9]{0,8}", "[1-3][0-9]{9}", "4[01][0-9]{8}", "42[0-8][0-9]{7}"),
        *("429[0-3][0-9]{6}", "4294[0-8][0-9]{5}", "42949[0-5][0-9]{4}", "429496[0-6][0-9]{3}"),
        *("4294967[01][0-9]{2}", "42949672[0-8][0-9]", "429496729[0-5]"),
    )
)
"""The numbers from 1 to 2**32 - 1: 0, to which monitors reduce larger ones, is a whole address."""

_CLIENT: Final = f"^[^/]*:0/({_NONCE})$"
_BLOCKLIST: Final = f'allow command "osd blocklist" with blocklistop=add addr regex "{_CLIENT}"'
"""The right to blocklist one client, and neither an address nor a daemon, whose port is not 0.

Ceph's profile rbd includes whole addresses, and snapshots of the whole pool.
"""

Capabilities = Mapping[str, str]
"""What a user may do, by the kind of daemon: "mon", "osd"."""


class Image(NamedTuple):
    """An image, as capabilities describe it.

    :ivar id: the hexadecimal digits in the names of its objects
    """

    pool: str
    name: str
    id: str


@dataclass(frozen=True)
class User:
    """A cephx user of this backend.

    :ivar entity: its name, "client.PREFIX" and the id of its attachment
    :ivar volume_id: the volume that its capabilities name
    :ivar pool: of the volume's image
    :ivar mode: None: its access is being revoked, or its capabilities were changed
    :ivar withdrawn: its access is being revoked
    """

    entity: str
    attachment_id: str
    volume_id: str
    pool: str
    mode: AccessMode | None
    withdrawn: bool = False


def capabilities(image: Image, mode: AccessMode) -> Capabilities:
    """Return the capabilities for one image.

    A reader needs ``w`` for the header: QEMU opens each image with a watch, which is a write.
    ``x`` would include methods that write, also without ``w``: ``rbd_info`` has options that
    librbd reads for each image of the pool, and the object map says which data there is.

    The prefix of data objects ends in a dot, so that it cannot be that of another image.

    Monitors let a user create and delete snapshots of all images of a pool, if one of its
    capabilities has ``w`` and names the pool.  So those with ``w`` name none: no other object of
    any pool has the id of the image in its name.  They name the namespace of images, which audits
    see.

    Source: Ceph's sources, mon/OSDMonitor.cc, is_unmanaged_snap_op_permitted().
    """
    is_writer = mode == "rw"
    granted = {
        "rbd_children": "class-read",
        "rbd_info": "r class-read",
        "rbd_mirroring": "r class-read",
        f"rbd_data.{image.id}.": "rwx" if is_writer else "r",
        f"rbd_header.{image.id}": "rwx",
        f"rbd_object_map.{image.id}": "rwx" if is_writer else "r class-read",
        f"rbd_id.{image.name}": "r class-read",
    }
    return {
        # A writer breaks the exclusive lock of a client that has died, by blocklisting it.
        "mon": f"allow r, {_BLOCKLIST}" if is_writer else "allow r",
        "osd": ", ".join(
            f"allow {rights} {_of_pool(image, rights)} object_prefix {prefix}"
            for prefix, rights in granted.items()
        ),
    }


def _of_pool(image: Image, rights: str) -> str:
    return 'namespace=""' if "w" in rights else f"pool={image.pool}"


def no_capabilities(pool: str, name: str) -> Capabilities:
    """Return capabilities that reach no object, and by which the image is still known."""
    return {"mon": "allow r", "osd": f"allow r pool={pool} object_prefix withdrawn.{name}"}


def as_arguments(caps: Capabilities) -> list[str]:
    """Return capabilities as the monitors take them."""
    return [word for daemon in ("mon", "osd") for word in (daemon, caps[daemon])]


@dataclass(frozen=True)
class Naming:
    """The names of images and users of a backend.

    :ivar pools: which have the images
    :ivar prefix: what both begin with; the id of the volume, or of the attachment, follows
    """

    pools: Sequence[str]
    prefix: str

    def image(self, volume_id: str) -> str:
        """Return the name of a volume's image; raises BackendError if the id is not a UUID."""
        return f"{self.prefix}{_checked(volume_id)}"

    def volume_id(self, image: str) -> str | None:
        """Return the volume of an image; None: it is none of this backend."""
        return _after(self.prefix, image)

    def entity(self, attachment_id: str) -> str:
        """Return the name of a user; raises BackendError if the id is not a UUID."""
        return f"client.{self.prefix}{_checked(attachment_id)}"

    @property
    def headers_entity(self) -> str:
        """Return the name of the user that extends images."""
        return f"client.{self.prefix}headers"

    def attachment_id(self, entity: str) -> str | None:
        """Return the attachment of a user; None: its name is none of this backend."""
        return _after(f"client.{self.prefix}", entity)

    def user(self, entity: str, caps: Capabilities) -> User | None:
        """Describe a user; None: it is none of this backend, or its volume is unknown."""
        attachment_id = self.attachment_id(entity)
        osd = caps.get("osd", "")
        named = _NAME.search(osd)
        if not attachment_id or not named or named[1] not in self.pools:
            return None
        pool, name = named.groups()
        volume_id = self.volume_id(name)
        if volume_id is None:
            return None
        withdrawn = caps == no_capabilities(pool, name)
        return User(entity, attachment_id, volume_id, pool, _mode(pool, name, caps), withdrawn)


def _mode(pool: str, name: str, caps: Capabilities) -> AccessMode | None:
    data = _DATA.search(caps.get("osd", ""))
    image = Image(pool, name, data[1] if data else "")
    modes: tuple[AccessMode, ...] = ("rw", "ro")
    return next((mode for mode in modes if caps == capabilities(image, mode)), None)


def _checked(uuid: str) -> str:
    if not re.fullmatch(_UUID, uuid):
        raise exception.BackendError(f"{uuid!r} is not a UUID.", final=True)
    return uuid


def _after(prefix: str, name: str) -> str | None:
    rest = name.removeprefix(prefix)
    return rest if rest != name and re.fullmatch(_UUID, rest) else None


def names_image(caps: Capabilities) -> bool:
    """Return whether capabilities name an image, of this or of another backend."""
    return _NAME.search(caps.get("osd", "")) is not None


def reaches(caps: Capabilities, image: Image) -> bool:
    """Return whether capabilities name the data of an image."""
    return f"rbd_data.{image.id}" in caps.get("osd", "")


def is_client(address: str) -> bool:
    """Return whether an entry of a blocklist is one client, and no whole address or daemon."""
    return re.search(_CLIENT, address) is not None


def may_use(pools: Sequence[str], caps: Capabilities) -> bool:
    """Return whether a user reaches the images of a pool; administrators do not count."""
    clauses = [clause.strip() for clause in caps.get("osd", "").split(",")]
    narrow = re.compile(r"object_prefix|\bclass\b|\btag\b|namespace=|^profile osd$|^allow \*$|^$")
    reached = [(clause, re.search(r"\bpool[= ](\S+)", clause)) for clause in clauses]
    return any(
        not narrow.search(clause) and (named is None or named[1] in pools)
        for clause, named in reached
    )
