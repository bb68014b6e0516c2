"""An index of OpenSearch 2 or later: each row of a table is one document.

A document's id is made of the row's keys; where the table has none, of its generation and version and the
row's number in that. The document's version is made of these two (`external_gte`), so what comes again
changes nothing, and an older request that arrives after a newer one is refused. Which version the index has
reached is written down after its documents, in `headwater_sinks`, by the id that OpenSearch gave the index:
one that is made anew begins at the start.

https://docs.opensearch.org/latest/api-reference/document-apis/bulk/
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from opensearchpy import OpenSearch
from opensearchpy.exceptions import (
    ImproperlyConfigured,
    NotFoundError,
    OpenSearchException,
    RequestError,
)
from opensearchpy.helpers import streaming_bulk

from headwater.common import arrow, times
from headwater.connectors.sinks import (
    CHANGE,
    DELETE,
    PROGRESS,
    Changes,
    Position,
    Published,
    Sink,
    documents,
)
from headwater.connectors.sinks.opensearch_errors import in_our_words, passing, without_values
from headwater.errors import FlowError, SinkUnavailable
from headwater.project.conf import OpenSearchOptions

OLDEST = 2
ROWS, BYTES = 2_000, 8 * 1024 * 1024  # of one request at most, unless one row has more bytes
_GENERATION = 1 << 40  # the version of a document grows with the table's generation, then its version
_EXISTS = "resource_already_exists_exception"
_CONFLICT = "version_conflict_engine_exception"

logging.getLogger("opensearch").setLevel(logging.CRITICAL)  # its errors are raised


class OpenSearchIndex(Sink):
    """See `headwater.connectors.sinks.Sink`.

    Args:
        options: how the cluster is reached.
        index: the index, or an alias of one; made where it is missing.
    """

    def __init__(self, options: OpenSearchOptions, index: str) -> None:
        self._options = options
        self._index = index
        self._client: OpenSearch | None = None

    def open(self, table: Published) -> Position:
        """Connect, make or check the index; the version that it has, (0, -1) where it has none.

        Raises:
            SinkUnavailable: the cluster can't be reached, or has no time.
            FlowError: it refuses us, is too old, or the index there does not fit.
        """
        self._table = table
        try:
            self._fields = documents.mapping(table.columns)
        except ValueError as e:
            raise self._wrong(str(e)) from None
        with in_our_words(self._table, self._index):
            self._client = client = self._connect()
            version = client.info()["version"]
            if version.get("distribution") != "opensearch" or int(version["number"].split(".")[0]) < OLDEST:
                raise FlowError(
                    f"{table.sink}: the server is {version.get('distribution', 'Elasticsearch')} "
                    f"{version['number']}",
                    code="SERVER_NOT_SUPPORTED",
                    table=table.name,
                    hint=f"OpenSearch {OLDEST} or later is needed",
                )
            self._uuid = self._prepare(client)
            return self._position(client)

    def write(self, changes: Changes) -> None:
        """Write the batch, then its version.

        Raises:
            SinkUnavailable: the cluster is gone or has no time; some rows may be there, and all come again.
            FlowError: it rejects a row; those before it are there, and all come again.
        """
        client = self._client
        assert client is not None
        with in_our_words(self._table, self._index):
            self._require_the_same(client)
            actions = self._actions(changes)
            for _, item in streaming_bulk(client, actions, ROWS, BYTES, raise_on_error=False, yield_ok=False):
                ((change, result),) = item.items()
                self._judge(change, result, changes)
            self._require_the_same(client)
            self._keep(client, changes.last)

    def close(self) -> None:
        """End the connections."""
        if self._client is not None:
            with suppress(OpenSearchException, OSError):
                self._client.close()
            self._client = None

    def _connect(self) -> OpenSearch:
        options = self._options
        try:
            if options.ca_certs is not None:
                Path(options.ca_certs).read_bytes()
            return OpenSearch(
                hosts=list(options.hosts),
                http_auth=None if options.user is None else (options.user, options.password or ""),
                ca_certs=options.ca_certs,
                verify_certs=options.verify_certs,
                ssl_show_warn=False,
                timeout=options.timeout,
                max_retries=len(options.hosts) - 1,  # each node once: trying again later is the flow's
            )
        except (ImproperlyConfigured, OSError) as e:
            raise FlowError(
                f"{self._table.sink}: ca_certs can't be read: {e}",
                code="CERTIFICATES_NOT_READABLE",
                table=self._table.name,
                hint="mend the environment",
            ) from None

    def _prepare(self, client: OpenSearch) -> str:
        """Have the index, and that of the positions; the id that OpenSearch gave the index."""
        kinds = {"sink": "keyword", "table": "keyword", "written_at": "date"}
        numbers = dict.fromkeys(("generation", "version", "committed"), "long")
        fields = {name: {"type": kind} for name, kind in {**kinds, **numbers}.items()}
        hidden = {"hidden": True, "number_of_shards": 1, "auto_expand_replicas": "0-1"}
        body = {"settings": {"index": hidden}, "mappings": {"properties": fields}}
        if not _create(client, PROGRESS, body):  # an earlier one has fewer fields
            client.indices.put_mapping(index=PROGRESS, body={"properties": fields})
        found = self._found(client)
        if found is None:
            meta = {"headwater": self._told()}
            mapping = {"dynamic": "strict", "_meta": meta, "properties": self._fields}
            _create(client, self._index, {"mappings": mapping})
            found = self._found(client)
            if found is None:
                raise SinkUnavailable(
                    f"{self._table.sink}: the index {self._index} is gone again",
                    code="SINK_TARGET_GONE",
                    table=self._table.name,
                )
        self._check(client, found["mappings"])
        return str(found["settings"]["index"]["uuid"])

    def _found(self, client: OpenSearch) -> dict[str, Any] | None:
        """The index's mappings and settings; None where there is none."""
        try:
            answer: dict[str, dict[str, Any]] = client.indices.get(index=self._index)
        except NotFoundError:
            return None
        if len(answer) != 1:
            raise self._wrong(f"it is {len(answer)} indices; a sink writes to one")
        return next(iter(answer.values()))

    def _check(self, client: OpenSearch, mappings: dict[str, Any]) -> None:
        """The index holds this table and no other, and takes every value."""
        meta = mappings.get("_meta", {})
        holds = meta.get("headwater", self._told())
        if holds["table"] != self._table.name:
            raise self._wrong(f"it holds {holds['table']}")
        if holds["id"] != self._table.id:
            raise self._wrong(f"it holds rows of an earlier life of {self._table.name}")
        if problem := documents.misfit(self._fields, mappings.get("properties", {})):
            raise self._wrong(problem)
        if "headwater" not in meta:
            client.indices.put_mapping(index=self._index, body={"_meta": {**meta, "headwater": self._told()}})

    def _told(self) -> dict[str, str]:
        """What the index says of what it holds."""
        return {"table": self._table.name, "id": self._table.id}

    def _require_the_same(self, client: OpenSearch) -> None:
        """An index that was removed would be made by the first row, without mapping and earlier rows."""
        found = self._found(client)
        if found is None or found["settings"]["index"]["uuid"] != self._uuid:
            raise SinkUnavailable(
                f"{self._table.sink}: the index {self._index} was removed",
                code="SINK_TARGET_GONE",
                table=self._table.name,
                hint="it is made anew",
            )

    def _position(self, client: OpenSearch) -> Position:
        try:
            kept = client.get(index=PROGRESS, id=self._uuid)["_source"]
        except NotFoundError:
            return Position(0, -1)
        return Position(kept["generation"], kept["version"], kept.get("committed"))

    def _keep(self, client: OpenSearch, at: Position) -> None:
        now = times.now().isoformat(timespec="milliseconds")
        told = {"sink": self._table.sink, "table": self._table.name, "written_at": now}
        client.index(index=PROGRESS, id=self._uuid, body={**told, **asdict(at)})

    def _actions(self, changes: Changes) -> Iterator[dict[str, Any]]:
        """The last change of each row, in order."""
        again = self._table.keys and changes.first != changes.last  # in one version a key comes once
        last = {id: at for at, ids, _ in self._pieces(changes) for id in ids} if again else {}
        for at, ids, piece in self._pieces(changes):
            rows = piece.to_pylist(maps_as_pydicts="strict")
            for id, row in zip(ids, rows, strict=True):
                if last.get(id, at) == at:
                    gone = row.pop(CHANGE) == DELETE
                    version = at.generation * _GENERATION + at.version
                    where = {"_index": self._index, "_id": id, "version": version}
                    what = {"_op_type": "delete"} if gone else {"_source": documents.document(row)}
                    yield {**where, "version_type": "external_gte", **what}

    def _pieces(self, changes: Changes) -> Iterator[tuple[Position, list[str], pa.RecordBatch]]:
        """The changes in pieces, with the ids of the rows."""
        number, before = 0, changes.first
        for at, piece in changes.pieces(self._table):
            number, before = (number if at == before else 0), at
            if self._table.keys:
                keys = zip(*(arrow.values(piece[key]) for key in self._table.keys), strict=True)
                ids = [documents.identity(each) for each in keys]
            else:
                ids = [f"{at.generation}-{at.version}-{number + n}" for n in range(len(piece))]
            yield at, ids, piece
            number += len(piece)

    def _judge(self, change: str, result: dict[str, Any], changes: Changes) -> None:
        """What it means that a row was not written."""
        status, error = int(result["status"]), result.get("error") or {}
        if (change == "delete" and result.get("result") == "not_found") or error.get("type") == _CONFLICT:
            return  # it is gone already, or newer
        said = f"{error.get('type')}: {without_values(str(error.get('reason')))}"
        if passing(status):
            raise SinkUnavailable(
                f"{self._table.sink}: {said}", code="SINK_UNAVAILABLE", table=self._table.name
            )
        versions = f"versions {changes.first.version} to {changes.last.version}"
        raise FlowError(
            f"{self._table.sink}: the index {self._index} in OpenSearch rejects a row of {self._table.name} "
            f"({versions}): {said}",
            code="SINK_REJECTS_ROW",
            table=self._table.name,
            hint=f"mend the index's mapping, or let it be made anew: DELETE /{self._index}",
        )

    def _wrong(self, what: str) -> FlowError:
        return FlowError(
            f"{self._table.sink}: the index {self._index} in OpenSearch does not fit {self._table.name}: "
            f"{what}",
            code="SINK_TARGET_DIFFERS",
            table=self._table.name,
            hint=f"mend it, or let it be made anew: DELETE /{self._index}",
        )


def _create(client: OpenSearch, index: str, body: dict[str, Any]) -> bool:
    """Make an index where there is none; whether this call did."""
    if client.indices.exists(index=index):
        return False
    try:
        client.indices.create(index=index, body=body)
    except RequestError as e:
        if e.error != _EXISTS:  # another sink was faster
            raise
        return False
    return True
