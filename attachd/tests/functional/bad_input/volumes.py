# SPDX-License-Identifier: Apache-2.0
"""Bad requests for volumes and their metadata."""

from typing import Any

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

URL = "/volumes"
ITEM = "/volumes/{volume}"
PAIRS = "/volumes/{volume}/metadata"
SIZES: list[Any] = [None, 0, -1, 1.5, True, "", "0", "big", "1.5", "1\n", " 1", [1], {}, 2**31]
LOOSE = {"version": "volume 3.52"}
READER = {"token": wsgi_api.READER}
ADMIN = {"token": wsgi_api.ADMIN}
_MANY = "%7B" + ",".join(f"'k{i}':'v'" for i in range(33)) + "%7D"
_TIMES = ",".join(["gt:2026-01-01T00:00:00"] * 101)


def _create(claim: str, says: str, options: Any = None, status: int = 400, **fields: Any) -> Row:
    body = {"volume": {"size": 1, **fields}}
    return Row(f"create: {claim}", "POST", URL, body, status, says, options or {})


def _update(claim: str, says: str, volume: Any, path: str = ITEM, status: int = 400) -> Row:
    return Row(f"update: {claim}", "PUT", path, {"volume": volume}, status, says)


def _pairs(claim: str, says: str, body: Any, method: str = "POST", path: str = PAIRS) -> Row:
    return Row(f"metadata: {claim}", method, path, body, 400, says)


def _list(claim: str, says: str, query: str, options: Any = None, status: int = 400) -> Row:
    path = f"/volumes/detail?{query}"
    return Row(f"list: {claim}", "GET", path, None, status, says, options or {})


def _delete(claim: str, status: int, says: str, path: str, options: Any = None) -> Row:
    return Row(f"delete: {claim}", "DELETE", path, None, status, says, options or {})


ROWS = [
    Row(
        "create: half a key",
        "POST",
        "/volumes",
        {"volume": {"size": 1}},
        400,
        "Idempotency-Key must be",
        {"idempotency_key": '"x'},
    ),
    Row("create: no volume", "POST", URL, {"size": 1}, 400, "'volume' is a required|'size' was"),
    Row("create: null", "POST", URL, {"volume": None}, 400, "volume. Value: None"),
    Row("create: a list", "POST", URL, {"volume": [1]}, 400, "not of type 'object'"),
    Row("create: nothing in it", "POST", URL, {"volume": {}}, 400, "volume.size"),
    Row(
        "create: something beside it",
        "POST",
        URL,
        {"volume": {"size": 1}, "server": 1},
        400,
        "'server' was unexpected",
    ),
    Row(
        "create: hints are no object",
        "POST",
        URL,
        {"volume": {"size": 1}, "OS-SCH-HNT:scheduler_hints": "here"},
        400,
        "scheduler_hints",
    ),
    *(_create(f"a size of {str(size)[:20]!r}", "volume.size", size=size) for size in SIZES),
    _create("a size in words before they were strict", "volume.size", LOOSE, size="ten"),
    _create("more than there is", "2147483648|No backend|asked for", size="2147483648"),
    _create("an unknown field", r"'colour' was unexpected", colour="red"),
    _create("a name that is a number", "name. Value: 7", name=7),
    _create("a name that is a novel", "volume.name", name="x" * 256),
    _create("a description that is a novel", "volume.description", description="x" * 256),
    _create("an old name that is a list", "volume.display_name", display_name=[]),
    _create("a NUL in the name", "volume.name", name="a\x00b"),
    _create("half a character", "volume.description", description="\ud83d"),
    _create("metadata of text", "volume.metadata", metadata="a=b"),
    _create("a metadata value of a number", "volume.metadata.a", metadata={"a": 1}),
    _create("a metadata value of null", "volume.metadata.a", metadata={"a": None}),
    _create("a metadata value of a novel", "volume.metadata.a", metadata={"a": "x" * 256}),
    _create("an empty metadata key", "volume.metadata", metadata={"": "x"}),
    _create("a metadata key of a novel", "volume.metadata", metadata={"k" * 256: "x"}),
    _create("a metadata key that cannot be typed", r"metadata.*a\\nb", metadata={"a\nb": "x"}),
    _create("a metadata key in cyrillic", "volume.metadata", metadata={"ключ": "x"}),
    _create("too much metadata", "volume.metadata", metadata={f"k{i}": "" for i in range(257)}),
    _create("a snapshot", "no snapshots", status=404, snapshot_id="{unknown}"),
    _create("a copy of what is none", "volume.source_volid", source_volid="disk"),
    _create("a copy of a number", "volume.source_volid", source_volid=1),
    _create("a copy of nothing", "Volume {unknown}", status=404, source_volid="{unknown}"),
    _create(
        "a copy of another's", "Volume {their_volume}", status=404, source_volid="{their_volume}"
    ),
    _create("a copy of what is broken", "currently error", source_volid="{broken_volume}"),
    _create(
        "a copy in another zone",
        "It must be that of volume",
        source_volid="{volume}",
        availability_zone="far",
    ),
    _create("a replica", "no replicas", source_replica="{volume}"),
    _create("an image", "no images", imageRef="{unknown}"),
    _create("a backup", "no backups", status=404, backup_id="{unknown}"),
    _create("a group", "no groups", status=404, group_id="{unknown}"),
    _create(
        "a consistency group", "no consistency groups", status=404, consistencygroup_id="{unknown}"
    ),
    _create("multiattach by request", "volume type", multiattach=True),
    _create("multiattach of nonsense", "volume.multiattach", multiattach="perhaps"),
    _create("an unknown zone", "zone mars", availability_zone="mars"),
    _create("an empty zone", "volume.availability_zone", availability_zone=""),
    _create("a zone of a number", "volume.availability_zone", availability_zone=1),
    _create("an unknown type", "Volume type {unknown}", status=404, volume_type="{unknown}"),
    _create(
        "an unknown type by name", "type with name gold could not", status=404, volume_type="gold"
    ),
    _create("a type of an object", "volume.volume_type", volume_type={"id": "{type}"}),
    _create("a reader", "volume:create", READER, 403),
    Row("show: unknown", "GET", "/volumes/{unknown}", None, 404, "Volume {unknown} could not"),
    Row("show: another's", "GET", "/volumes/{their_volume}", None, 404, "Volume {their_volume}"),
    Row("show: no id at all", "GET", "/volumes/x'; --", None, 404, "Volume x'; -- could not"),
    Row("update: no volume", "PUT", ITEM, {}, 400, "'volume' is a required"),
    _update("null", "volume. Value: None", None),
    _update("nothing", "volume. Value: {}", {}),
    _update("a size", "'size' was unexpected", {"size": 5}),
    _update("a status", "'status' was unexpected", {"status": "error"}),
    _update("a name of a number", "volume.name", {"name": 5}),
    _update("a name of a novel", "volume.name", {"name": "x" * 256}),
    _update("metadata of null", "volume.metadata", {"metadata": None}),
    _update("a metadata value of null", "volume.metadata.a", {"metadata": {"a": None}}),
    _update("unknown", "Volume {unknown}", {"name": "n"}, "/volumes/{unknown}", 404),
    _update("another's", "Volume {their_volume}", {"name": "n"}, "/volumes/{their_volume}", 404),
    Row("update: a reader", "PUT", ITEM, {"volume": {"name": "n"}}, 403, "volume:update", READER),
    _pairs("no metadata", "'metadata' is a required", {}),
    _pairs("null", "metadata. Value: None", {"metadata": None}),
    _pairs("a list", "metadata", {"metadata": ["a"]}),
    _pairs("a value of a number", "metadata.a", {"metadata": {"a": 1}}),
    _pairs("a key of a novel", "metadata", {"metadata": {"k" * 256: "v"}}),
    _pairs("replace: a value of null", "metadata.a", {"metadata": {"a": None}}, "PUT"),
    _pairs("pair: nothing", "'meta' is a required", {}, "PUT", f"{PAIRS}/a"),
    _pairs("pair: empty", "meta. Value: {}", {"meta": {}}, "PUT", f"{PAIRS}/a"),
    _pairs("pair: two", "meta", {"meta": {"a": "1", "b": "2"}}, "PUT", f"{PAIRS}/a"),
    _pairs("pair: another key", "mismatch", {"meta": {"b": "2"}}, "PUT", f"{PAIRS}/a"),
    Row("metadata: unknown key", "GET", f"{PAIRS}/zz", None, 404, "no metadata with key zz"),
    Row("metadata: no such key", "DELETE", f"{PAIRS}/zz", None, 404, "no metadata with key zz"),
    Row(
        "metadata: another's",
        "PUT",
        "/volumes/{their_volume}/metadata",
        {"metadata": {}},
        404,
        "Volume {their_volume}",
    ),
    Row(
        "metadata: read before it was changed",
        "PUT",
        PAIRS,
        {"metadata": {}},
        412,
        "changed since it was read",
        {"if_match": '"0"'},
    ),
    Row(
        "metadata: a reader",
        "POST",
        PAIRS,
        {"metadata": {}},
        403,
        "volume:create_volume_metadata",
        READER,
    ),
    _list("an unknown filter", "Invalid filters colour", "colour=red"),
    _list("an unknown filter of an administrator", "colour", "colour=red", ADMIN),
    _list("a filter for administrators", "host", "host=here"),
    _list("a limit of words", "limit must be", "limit=ten"),
    _list("a negative limit", "limit must be", "limit=-1"),
    _list("an unknown marker", "Marker {unknown}", "marker={unknown}", status=404),
    _list("another's marker", "Marker {their_volume}", "marker={their_volume}", status=404),
    _list("an unknown order", "sort key 'colour'", "sort=colour"),
    _list("an unknown direction", "sort direction 'up'", "sort=name:up"),
    _list("two kinds of order", "cannot be used with", "sort=name&sort_key=name"),
    _list("metadata of nonsense", "attribute metadata", "metadata=a:b"),
    _list("a size of words", "attribute size", "size=large"),
    _list("a truth of nonsense", "attribute bootable", "bootable=perhaps"),
    _list("more metadata than databases like", "attribute metadata", f"metadata={_MANY}"),
    _list("too many times", "attribute created_at", f"created_at={_TIMES}"),
    _list("a time of nonsense", "attribute created_at", "created_at=gt:yesterday"),
    _list("a count of nonsense", "attribute with_count", "with_count=perhaps"),
    _delete("unknown", 404, "Volume {unknown}", "/volumes/{unknown}"),
    _delete("another's", 404, "Volume {their_volume}", "/volumes/{their_volume}"),
    _delete("attached", 400, "{attached} .attached.", "/volumes/{attached_volume}"),
    _delete("attached, by force", 400, "{attached}", "/volumes/{attached_volume}?force=1", ADMIN),
    _delete("nonsense", 400, "attribute force", f"{ITEM}?force=perhaps"),
    _delete("force by a member", 403, "volume:force_delete", f"{ITEM}?force=True"),
    _delete("a reader", 403, "volume:delete", ITEM, READER),
]
