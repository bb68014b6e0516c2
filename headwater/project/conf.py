"""One YAML file per environment, `conf/<env>.yaml`, read strictly: an unknown key is an error.

Secrets in it are references, never values: see `headwater.project.secrets`.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from headwater.common import durations
from headwater.errors import ConfError
from headwater.errors.several import Collected
from headwater.project import keys, paths, secrets, yaml_file
from headwater.project.settings import Settings
from headwater.project.sizes import Heap, Size
from headwater.storage.names import FILES_CLUSTER

KafkaOptions = dict[str, str | int | bool]


class Strict(BaseModel):
    """A section in which a key that is not declared is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Broker(Strict):
    """The embedded broker, used when `kafka: embedded`."""

    port: Annotated[int, Field(ge=0, le=65535)] = 19092  # 0: any free port
    heap: str = "512m"


PostgresOptions = dict[str, str | int]


def _is_host(parts: SplitResult) -> bool:
    return parts.scheme in ("http", "https") and bool(parts.hostname)


class OpenSearchOptions(Strict):
    """How an OpenSearch cluster is reached.

    Attributes:
        hosts: its nodes, each as `https://host:9200`, or `http://…` without TLS.
        user, password: of HTTP Basic; none where the cluster asks for none.
        ca_certs: a file of the authorities (PEM) that the nodes' certificates are checked against; None: the
            authorities that Python's package certifi knows.
        verify_certs: false takes any certificate: to try things out.
        timeout: seconds to wait for an answer.
    """

    hosts: Annotated[tuple[str, ...], Field(min_length=1)]
    user: str | None = None
    password: str | None = None
    ca_certs: str | None = None
    verify_certs: bool = True
    timeout: Annotated[float, Field(gt=0)] = 10.0

    @field_validator("hosts")
    @classmethod
    def _are_addresses(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            parts = urlsplit(host)
            if parts.username is not None or parts.password is not None:
                raise ValueError("leave user and password out of the address; write them beside hosts")
            if not _is_host(parts):
                raise ValueError(f"{host} is no address; write https://host:9200")
        return hosts


class BucketOptions(Strict):
    """How a bucket of a store that speaks Amazon's S3 is reached.

    Attributes:
        region: Amazon's, as `eu-central-1`; other stores have names of their own, or none.
        endpoint: the store's address, `https://host[:port]`; None: Amazon's.
        access_key, secret_key, session_token: None: what Amazon's clients find (environment, profile, role).
    """

    region: str | None = None
    endpoint: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, endpoint: str | None) -> str | None:
        parts = urlsplit(endpoint or "https://host")
        if not _is_host(parts) or parts.username is not None:
            raise ValueError("that is no address; write https://host[:port], and the keys beside it")
        return endpoint

    @model_validator(mode="after")
    def _has_both_keys(self) -> BucketOptions:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key belong together: write both, or neither")
        return self


def _span(text: str) -> str:
    durations.parse(text)
    return text


Span = Annotated[str, AfterValidator(_span)]


class KeptFor(Strict):
    """What one table's maintenance does otherwise.

    Attributes:
        keep: see `Maintenance`.
        retention: how long rows stay after they came; None: for ever.
    """

    keep: Span | None = None
    retention: Span | None = None


class DuckDB(Strict):
    """What one DuckDB may take: the one for what flows compute beside Spark, and that of each query.

    Attributes:
        memory: what it holds in memory; what needs more is spilled to `_scratch` below the lake.
        disk: what it may spill.
    """

    memory: Size = "1GB"
    disk: Size = "10GB"


class Maintenance(Strict):
    """What `headwater run` and `headwater maintain` do for the tables' files and logs.

    Attributes:
        every: how often a run does it; `off`: never.
        keep: how far back versions can be read; what only older ones hold is removed.
        checkpoint: how many commits of a table there are from one checkpoint of its log, which is a snapshot
            of what the table (of state, too) holds, to the next. Readers replay the commits since.
        tables: by name, what is otherwise for a table. Rows of bronze tables, of quarantines and of `ops.*`
            alone can go by their age: all others are derived, and a row of theirs stands for rows of any age.
    """

    every: Span | Literal[False] = "10 minutes"
    keep: Span = "1 hour"
    checkpoint: Annotated[int, Field(ge=1)] = 20
    tables: dict[str, KeptFor] = {}

    def kept(self, table: str = "") -> timedelta:
        """How far back versions of a table can be read."""
        one = self.tables.get(table)
        return durations.parse(one.keep if one and one.keep else self.keep)

    @field_validator("tables")
    @classmethod
    def _are_kept(cls, tables: dict[str, KeptFor]) -> dict[str, KeptFor]:
        for name, kept in tables.items():
            if kept.retention and (name.split(".")[0] not in ("bronze", "quarantine", "ops") or "__" in name):
                raise ValueError(f"{name}: a retention is for bronze tables, quarantines and ops.*")
        return tables


class Conf(Strict):
    """An environment.

    Attributes:
        lake: the folder of all tables; a relative path stands below the project.
        kafka: `embedded`, or the options of a real cluster in the words of Kafka's Java client
            (`bootstrap.servers`, `security.protocol`, …), each passed through to Spark's source.
        librdkafka: options that the Python client needs in other words than the Java client.
        postgres: connections by name, each in libpq's words (`host`, `dbname`, `user`, `password`, …), or
            `off`: its sinks do not run in this environment.
        opensearch: connections by name, see `OpenSearchOptions`, or `off`.
        s3: buckets by name, see `BucketOptions`.
        cluster: the name of the cluster in every row's `_source`.
        broker: the embedded broker's settings.
        spark: Spark settings (`spark.*`) added to the engine's own.
        cores: task slots for batches; the real-time flows' slots come on top.
        memory: heap of the driver (in embedded use: of everything).
        duckdb: see `DuckDB`.
        trigger: how often Kafka is read, as Spark writes an interval.
        max_rows_per_batch: no batch of a flow takes more rows than this.
        max_bytes_per_batch: no batch of a flow takes more bytes of Parquet than this.
        parallelism: tasks of one batch of a flow, and partitions of its shuffles.
        maintain: see `Maintenance`.
    """

    lake: Path = Path(".headwater/lake")
    kafka: Literal["embedded"] | KafkaOptions = "embedded"
    librdkafka: KafkaOptions = {}
    postgres: dict[str, PostgresOptions | Literal[False]] = {}  # YAML reads `off` as false
    opensearch: dict[str, OpenSearchOptions | Literal[False]] = {}
    s3: dict[str, BucketOptions] = {}
    cluster: str = "main"
    broker: Broker = Broker()
    spark: Settings = {}
    _file: Path | None = PrivateAttr(default=None)
    cores: Annotated[int, Field(ge=1)] = 2
    memory: Heap = "2g"
    duckdb: DuckDB = DuckDB()
    trigger: Span = "500 milliseconds"
    max_rows_per_batch: Annotated[int, Field(ge=1)] = 500_000
    max_bytes_per_batch: Annotated[int, Field(ge=1)] = 256 * 1024 * 1024
    parallelism: Annotated[int, Field(ge=1)] = 2
    maintain: Maintenance = Maintenance()

    @field_validator("lake", mode="before")
    @classmethod
    def _is_folder(cls, lake: Any) -> Any:
        if "://" in str(lake):
            raise ValueError(f"a lake is a folder of this machine, and {lake} is an address; write a path")
        return lake

    @field_validator("cluster")
    @classmethod
    def _is_no_files(cls, cluster: str) -> str:
        if cluster == FILES_CLUSTER:
            raise ValueError(f"rows of files have the cluster '{FILES_CLUSTER}'; call it something else")
        return cluster

    @property
    def file(self) -> Path | None:
        """Where it stands; None: nowhere."""
        return self._file


def load(project: Path, env: str) -> Conf:
    """The environment `env` of the project, its secrets resolved.

    Raises:
        ConfError: the file is missing or is not valid; the message names file, key and fix.
    """
    path = project / "conf" / f"{env}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in path.parent.glob("*.yaml"))
        raise ConfError(
            f"{path}: no such environment",
            code="UNKNOWN_ENVIRONMENT",
            file=path,
            hint=f"known: {', '.join(known) or 'none'}; use --env",
        )
    raw = keys.nested(yaml_file.read(path), path)
    secrets.refuse_values(raw, path)
    try:
        conf = Conf.model_validate(secrets.resolve(raw, path))
    except ValidationError as e:
        wrong = Collected()
        wrong.add(*(ConfError(f"{path}: {said}", code="CONF_INVALID", file=path) for said in _problems(e)))
        wrong.check()
        raise
    conf._file = path
    return conf.model_copy(update={"lake": paths.lake(project / conf.lake.expanduser(), path)})


def _problems(error: ValidationError) -> list[str]:
    """What is wrong, a line for each key; of a key that may be of several kinds, by the first of these."""
    by_key = {
        problem["loc"][: 1 if problem["loc"][0] == "kafka" else 2]: problem
        for problem in error.errors()[::-1]
    }
    return [_said(problem) for problem in reversed(by_key.values())]


def _said(problem: ErrorDetails) -> str:
    named = [str(part) for part in problem["loc"] if part != OpenSearchOptions.__name__]
    key = ".".join(part for part in named if "[" not in part)  # as `function-after[…]`: pydantic's own
    if problem["type"] == "extra_forbidden":
        section = key.partition(".")[0] if "." in key else ""
        sections: dict[str, type[BaseModel]] = {
            "broker": Broker,
            "duckdb": DuckDB,
            "opensearch": OpenSearchOptions,
            "s3": BucketOptions,
            "maintain": KeptFor if ".tables." in key else Maintenance,
        }
        known = sorted(sections.get(section, Conf).model_fields)
        return f"unknown key '{key}'; known: {', '.join(known)}"
    if problem["loc"][0] == "kafka":
        of = "embedded, or the options of a cluster: kafka: {bootstrap.servers: 'host:9092'}"
        return f"key 'kafka': it is {of}"
    if problem["type"] == "path_type":
        return f"key '{key}': it is a path, such as _lake"
    return f"key '{key}': {problem['msg'].removeprefix('Value error, ')}"
