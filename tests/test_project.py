"""Loading and analysing a project: what is wrong is said with file, table and fix, before anything runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner

from headwater.cli import app
from headwater.errors.codes import Code
from headwater.planner import analysis
from headwater.planner.analysis import Analysed
from headwater.project import conf
from headwater.project.load import Project
from headwater.project.load import load_project as load
from headwater.storage.file_system import refuse_remote
from headwater.testing import Project as Tried

BRONZE = "import headwater as hw\n\nraw = hw.topic('raw', partitions=2)\n"
SILVER = """\"\"\"Readings.\"\"\"

import headwater as hw
from pyspark.sql import functions as F, Window

DDL = hw.json("host STRING, usage DOUBLE, at TIMESTAMP")


@hw.table(source={source}, decode=DDL{more})
def readings({arguments}):
    return {body}
"""
HOSTS = {
    "conf/reference/hosts.csv": "host,site\na,x\n",
    "conf/reference/hosts.ddl": "host STRING,\nsite STRING\n",
}
ALERT = """import headwater as hw


@hw.alert(topic="a", source="silver.readings", decode=hw.json("a INT"))
def alert(m):
    return m
"""
VIEW = "CREATE MATERIALIZED VIEW gold.v TBLPROPERTIES ({}) AS SELECT host FROM silver.readings"
PROCESS = """import headwater as hw


@hw.process(source={source}, keys=["host"], event_time="at", delay="1s", columns="n INT", state="n INT")
def p(row, key):
    yield {{"n": 1}}
"""
Make = Callable[[dict[str, str]], Path]


def silver(body: str = "raw", *, source: str = "'bronze.raw'", arguments: str = "raw", more: str = "") -> str:
    return SILVER.format(body=body, source=source, arguments=arguments, more=more)


def gold(query: str) -> str:
    return f"CREATE STREAMING TABLE gold.t AS {query}"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a project: bronze.raw, silver.readings, and the files given."""

    def write(files: dict[str, str]) -> Path:
        base = {
            "conf/local.yaml": "kafka: embedded\n",
            "bronze/raw.py": BRONZE,
            "silver/readings.py": silver(),
        }
        for name, text in {**base, **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path

    return write


def refusal(code: Code, root: Path) -> str:
    with raises_code(code) as refused:
        load(root)
    return str(refused.value)


# Loading


@pytest.mark.parametrize(
    "text",
    [
        "import headwater as hw\n\nhw.topic('other')\n",
        "import headwater\n\nheadwater.auto_cdc(source='bronze.raw', keys=['a'], sequence_by='b')\n",
        "from headwater import kafka_sink as to\n\nto('silver.readings', topic='t')\n",
    ],
)
def test_a_definition_without_a_name_is_none(make: Make, text: str) -> None:
    said = refusal("DEFINITION_UNNAMED", make({"bronze/other.py": text}))
    assert "other.py:3: " in said and "write name = " in said


def test_names_come_from_folder_and_variable_and_order_from_sources(make: Make) -> None:
    root = make(
        {
            "gold/a.sql": gold("SELECT host, count(*) AS n FROM STREAM silver.readings GROUP BY host"),
            "silver/_helper.py": "raise RuntimeError('not loaded')",
            "silver/notes.txt": "not a definition",
            **HOSTS,
        }
    )
    project = load(root / "gold")
    assert project.root == root and project.names() == ["bronze.raw", "silver.readings", "gold.t"]
    assert list(project.references) == ["reference.hosts", "reference.clock"]
    assert project.tables["silver.readings"].file == root / "silver" / "readings.py"
    assert project.tables["silver.readings"].comment == "Readings."
    assert project.conf.lake == root / ".headwater" / "lake"
    assert project.above(["silver.readings"]) == ["bronze.raw", "silver.readings"]
    with raises_code("UNKNOWN_TABLE", table="gold.x"):
        project.definition("gold.x")


def test_python_runs_without_being_imported_by_a_clashing_name(make: Make) -> None:
    root = make({"silver/json.py": "import json\nimport headwater as hw\nassert json.dumps\n"})
    assert load(root).names() == ["bronze.raw", "silver.readings"]


def test_folders_below_a_layer_hold_definitions_too(make: Make) -> None:
    plain = "CREATE STREAMING TABLE {} AS SELECT * FROM STREAM silver.readings"
    root = make(
        {
            "silver/a/b/deep.sql": plain.format("deep"),
            "silver/_helpers/no.sql": plain.format("no"),
            "silver/a/_no.sql": plain.format("no"),
            "silver/.ipynb_checkpoints/no.sql": plain.format("no"),
            "gold/a/deep.sql": plain.format("deep"),
        }
    )
    assert set(load(root).names()) == {"bronze.raw", "silver.readings", "silver.deep", "gold.deep"}


@pytest.mark.parametrize(
    ("files", "code", "says"),
    [
        (
            {"silver/other.py": silver()},
            "NAME_TWICE",
            "readings.py:10: silver.readings is also declared in {root}/silver/other.py; rename one",
        ),
        (
            {
                "silver/readings__state.sql": "CREATE STREAMING TABLE readings__state "
                "AS SELECT 1 FROM STREAM bronze.raw"
            },
            "NAME_TWICE",
            "readings__state.sql:1: silver.readings__state has the name of the table of silver.readings for "
            "its state; rename one",
        ),
        (
            {"silver/readings.py": silver(source="'bronze.rwa'")},
            "UNKNOWN_SOURCE",
            "{root}/silver/readings.py:10: silver.readings reads 'bronze.rwa', which is unknown; did you "
            "mean bronze.raw?",
        ),
        (
            {"silver/readings.py": silver(source="'kafka'")},
            "UNKNOWN_SOURCE",
            "reads 'kafka', which is unknown; known: bronze.raw, silver.readings",
        ),
        (
            {"gold/t.sql": gold("SELECT host, count(*) AS n FROM STREAM silver.reading GROUP BY host")},
            "UNKNOWN_SOURCE",
            "t.sql:1: gold.t reads 'silver.reading', which is unknown; did you mean silver.readings?",
        ),
        (
            {
                "silver/a.sql": "CREATE STREAMING TABLE silver.a AS SELECT * FROM STREAM silver.b",
                "silver/b.sql": "CREATE STREAMING TABLE silver.b AS SELECT * FROM STREAM silver.a",
            },
            "DEFINITIONS_CYCLE",
            " is in a cycle: silver.",
        ),
        (
            {"bronze/raw.py": "import headwater as hw\nraw = hw.topic('in', trigger='often')\n"},
            "INTERVAL_INVALID",
            "raw.py:2: bronze.raw: interval 'often' is no span of time; write one such as 500ms, 10s",
        ),
        (
            {"gold/t.sql": gold("SELECT host FROM STREAM gold.t")},
            "DEFINITIONS_CYCLE",
            "{root}/gold/t.sql:1: gold.t is in a cycle: gold.t → gold.t; cut it",
        ),
        (
            {
                "silver/two.py": silver(source="['bronze.raw', 'silver.readings']", arguments="a, b").replace(
                    "readings(", "two("
                )
            },
            "SEVERAL_STREAMS",
            "silver.two reads 2 streams (bronze.raw, silver.readings); a table that decodes reads one",
        ),
        (
            {"silver/two.py": silver(source="'reference.hosts'").replace("readings(", "two("), **HOSTS},
            "SEVERAL_STREAMS",
            "silver.two reads no table that is written to; name one; reference tables may be joined with it",
        ),
        (
            {"gold/t.sql": gold("SELECT host, count(*) AS n FROM silver.readings GROUP BY host")},
            "STREAM_MISSING",
            "{root}/gold/t.sql:1: gold.t reads silver.readings as a table; write FROM STREAM",
        ),
        (
            {"silver/two.py": silver(source="'silver.readings'").replace("readings(", "two(")},
            "NOT_BRONZE",
            "silver.two decodes silver.readings, which is no bronze table",
        ),
        (
            {"gold/t.sql": "CREATE STREAMING TABLE silver.t AS SELECT 1 AS n FROM STREAM silver.readings"},
            "WRONG_FOLDER",
            "{root}/gold/t.sql:1: silver.t is in folder gold; name it gold.<name>",
        ),
        (
            {
                "gold/t.sql": gold("SELECT 1 AS n FROM STREAM silver.readings").replace(
                    "gold.t", "gold.`../../x`"
                )
            },
            "TABLE_NAME_INVALID",
            "{root}/gold/t.sql:1: gold.../../x has other characters in its name than letters, digits and _",
        ),
        *(
            (
                {"gold/v.sql": VIEW.format(f"'headwater.{said}'")},
                "PROPERTY_INVALID",
                f"gold.v: {says} is of windows",
            )
            for said, says in {
                "emit' = 'final": "emit = 'final'",
                "allowed_lateness' = '1h": "allowed_lateness",
            }.items()
        ),
        (
            {"gold/v.sql": VIEW.format("'headwater.publish' = 'x', 'headwater.publish.on' = 'final'")},
            "PROPERTY_INVALID",
            "gold.v->x: on = 'final' is of windows, which are over one day, and rows of a view may",
        ),
        (
            {"gold/p.py": PROCESS.format(source="['silver.readings', 'bronze.raw']")},
            "SEVERAL_STREAMS",
            "{root}/gold/p.py:5: gold.p reads 2 streams (silver.readings, bronze.raw) without names",
        ),
        (
            {"gold/p.py": PROCESS.format(source="['silver.readings', 'reference.hosts']"), **HOSTS},
            "NOT_A_STREAM",
            "gold.p reads reference.hosts, which it can't read row by row; a process reads tables whose rows",
        ),
        (
            {
                "gold/p.py": PROCESS.format(source="'gold.v'"),
                "gold/v.sql": "CREATE TEMPORARY VIEW v AS SELECT * FROM STREAM silver.readings",
            },
            "NOT_A_STREAM",
            "gold.p reads gold.v, which it can't read row by row; a process reads tables whose rows",
        ),
        (
            {"gold/p.py": PROCESS.format(source="[['silver.readings']]")},
            "MODULE_FAILED",
            "{root}/gold/p.py:4: TypeError: source = [['silver.readings']] is no name of a table",
        ),
        ({"silver/bad.py": "x = 1\ndef f(:\n"}, "MODULE_FAILED", "{root}/silver/bad.py:2: SyntaxError: "),
        (
            {"silver/bad.py": "import nowhere_to_be_found\n"},
            "MODULE_FAILED",
            "{root}/silver/bad.py:1: ModuleNotFoundError: ",
        ),
        (
            {"silver/bad.py": "1 / 0\n"},
            "MODULE_FAILED",
            "{root}/silver/bad.py:1: ZeroDivisionError: division by zero; mend the file",
        ),
        ({"gold/t.sql": "CREATE STREAMING"}, "SQL_INVALID", "{root}/gold/t.sql:1: [PARSE_SYNTAX_ERROR]"),
        (
            {"gold/sink.py": "import headwater as hw\nsink = hw.kafka_sink('gold.u', topic='t')\n"},
            "UNKNOWN_SOURCE",
            "reads 'gold.u', which is unknown",
        ),
        (
            {"silver/alert.py": ALERT},
            "UNKNOWN_SOURCE",
            "silver.alert reads 'silver.readings', which is unknown; known: bronze.raw",
        ),
    ],
)
def test_a_wrong_graph_is_refused(make: Make, files: dict[str, str], code: Code, says: str) -> None:
    root = make(files)
    assert says.format(root=root) in refusal(code, root)


def test_functions_of_the_project_reach_the_workers(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "conf/local.yaml": "kafka: embedded\n",
        "words_of_this_test.py": "def loud(text):\n    return text.upper() + MARK\n\nMARK = '!'\n",
        "bronze/raw.py": BRONZE,
        "silver/readings.py": """import headwater as hw
from pyspark.sql import functions as F
from words_of_this_test import loud

def twice(text):
    return loud(text) * 2

@hw.table(source="bronze.raw", decode=hw.json("host STRING"))
def readings(raw):
    return raw.select(F.udf(twice)("host").alias("host"), "_source")
""",
    }
    monkeypatch.syspath_prepend(str(tmp_path))
    project = Tried(files, tmp_path, spark=interpreted)
    project.send("raw", [{"host": "a"}]).step()
    assert project.rows("silver.readings", "host") == [("A!A!",)]


# The environment


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("kafka: embedded\nlaek: x\n", "CONF_INVALID", "unknown key 'laek'; known: broker, cluster, "),
        ("broker: {prot: 1}\n", "CONF_INVALID", "unknown key 'broker.prot'"),
        ("cores: 0\n", "CONF_INVALID", "key 'cores': "),
        ("lake: [1]\n", "CONF_INVALID", "key 'lake': it is a path, such as _lake"),
        ("kafka: 5\n", "CONF_INVALID", "key 'kafka': it is embedded, or the options of a cluster"),
        ("kafka: localhost:9092\n", "CONF_INVALID", "kafka: {bootstrap.servers: 'host:9092'}"),
        ("memory: 2x\n", "CONF_INVALID", "2x is no heap that Spark runs in; write 2g or 1500m"),
        ("memory: 10m\n", "CONF_INVALID", "512m at least"),
        ("trigger: soon\n", "CONF_INVALID", "key 'trigger': "),
        ("maintain: {every: 3 parsecs}\n", "CONF_INVALID", "key 'maintain.every': "),
        (
            "maintain: {tables: {bronze.rwa: {retention: 90 days}}}\n",
            "CONF_INVALID",
            "key 'maintain.tables': no table 'bronze.rwa'; did you mean bronze.raw",
        ),
        ("a: [\n", "CONF_INVALID", "not valid YAML"),
        ("- a\n", "CONF_INVALID", "this is a list, not keys with values; write"),
        ("embedded", "CONF_INVALID", "this is a str, not keys with values"),
        ("cores: 1\nkafka: embedded\ncores: 2\n", "CONF_INVALID", "key 'cores' comes twice"),
        ("maintain: {keep: 1h, keep: 2h}\n", "CONF_INVALID", "key 'keep' comes twice"),
        (
            "spark.sql.shuffle.partitions: 4\n",
            "CONF_INVALID",
            "key 'spark': spark.sql.shuffle.partitions is what the key 'parallelism' says",
        ),
        (
            "spark.sql.session.timeZone: Mars/One\n",
            "CONF_INVALID",
            "key 'spark': spark.sql.session.timeZone is UTC, which rows' values rest on; leave it out",
        ),
        (
            "spark: {spark.sql.session.timeZone: utc, spark.sql.ansi.enabled: false}\n",
            "CONF_INVALID",
            "key 'spark': spark.sql.ansi.enabled is true, which rows' values rest on; leave it out",
        ),
        (
            "lake: s3://acme/lake\n",
            "CONF_INVALID",
            "key 'lake': a lake is a folder of this machine",
        ),
        (
            "lake: env:HEADWATER_TEST_UNSET\n",
            "SECRET_MISSING",
            "environment variable HEADWATER_TEST_UNSET is not set; set it or",
        ),
        (
            "kafka: {password: 'file:/nowhere/secret'}\n",
            "SECRET_MISSING",
            "secret file /nowhere/secret does not exist; write it with mode",
        ),
    ],
)
def test_a_wrong_environment_is_refused(make: Make, text: str, code: Code, says: str) -> None:
    root = make({"conf/local.yaml": text})
    found = refusal(code, root)
    assert found.startswith(f"{root}/conf/local.yaml: ") and says in found


def test_a_setting_of_spark_is_as_spark_writes_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    text = "lake: ~/lake\nspark: {shop.eu: true, shop.most: 5, shop.name: x}\n"
    found = load(make({"conf/local.yaml": text})).conf
    assert found.spark == {"spark.shop.eu": "true", "spark.shop.most": "5", "spark.shop.name": "x"}
    assert found.lake == Path("/home/someone/lake")


def test_files_that_are_no_text_are_refused(make: Make) -> None:
    root = make({})
    for name, code in (("gold/t.sql", "SQL_INVALID"), ("conf/local.yaml", "CONF_INVALID")):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"\xff\xfe\x00")
        assert refusal(code, root).startswith(f"{root}/{name}: this is no text in UTF-8; save it")  # type: ignore[arg-type]


def test_an_unknown_environment_lists_the_known(make: Make) -> None:
    with raises_code("UNKNOWN_ENVIRONMENT", file="cluster.yaml"):
        load(make({}), "cluster")


def test_secrets_are_resolved_and_kept_from_messages(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make({})
    secret = root / "secret"
    secret.write_text("s3cr3t\nnot this\n")
    secret.chmod(0o600)
    monkeypatch.setenv("HEADWATER_TEST_NAME", "env:kept as it is")
    options = f"kafka: {{user: 'env:HEADWATER_TEST_NAME', password: 'file:{secret}'}}\n"
    (root / "conf" / "local.yaml").write_text(options)
    assert load(root).conf.kafka == {"user": "env:kept as it is", "password": "s3cr3t"}
    (root / "conf" / "local.yaml").write_text(options + f"cores: 'file:{secret}'\n")
    assert "s3cr3t" not in refusal("CONF_INVALID", root)
    for mode in (0o640, 0o604, 0o644):
        secret.chmod(mode)
        assert f"secret file {secret} can be read by others; run: chmod 600 {secret}" in refusal(
            "SECRET_EXPOSED", root
        )


@pytest.mark.parametrize(
    "text",
    [
        "kafka: {sasl.password: t0psecret}",
        "kafka: {ssl.truststore.password: 12345}",
        "kafka: {ssl.keystore.key: t0psecret}",
        "kafka: {sasl.oauthbearer.client.credentials.client.secret: t0psecret}",
        'kafka: {sasl.jaas.config: \'x.PlainLoginModule required username="a" password="t0psecret";\'}',
        "librdkafka: {sasl.password: t0psecret}",
        "librdkafka: {ssl.key.pem: t0psecret}",
        "spark: {spark.ssl.keyPassword: t0psecret}",
        "spark: {spark.hadoop.fs.s3a.secret.key: t0psecret}",
        "spark: {spark.hadoop.fs.azure.account.key.acme.blob.core.windows.net: t0psecret}",
        "spark: {spark.driver.extraJavaOptions: '-Djavax.net.ssl.keyStorePassword=t0psecret'}",
        "postgres: {dwh: {host: localhost, sslpassword: t0psecret}}",
        "postgres: {dwh: {dbname: 'postgresql://me:t0psecret@localhost/dwh'}}",
    ],
)
def test_a_secret_that_stands_in_the_file_is_refused(make: Make, text: str) -> None:
    root = make({"conf/local.yaml": text})
    found = refusal("SECRET_IN_CONF", root)
    assert found.startswith(f"{root}/conf/local.yaml: {text.partition(':')[0]}.")
    assert "t0psecret" not in found and "12345" not in found


def test_options_that_only_speak_of_secrets_are_taken(make: Make) -> None:
    options = {
        "ssl.truststore.location": "/etc/ssl/trust.jks",
        "ssl.key.location": "/etc/ssl/key.pem",
        "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
        "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;",
    }
    spark = {
        "spark.hadoop.fs.s3a.aws.credentials.provider": "x.Provider",
        "spark.redaction.regex": "password|token",
    }
    root = make({"conf/local.yaml": yaml.safe_dump({"kafka": options, "spark": spark})})
    found = load(root).conf
    assert (found.kafka, found.spark) == (options, spark)


def test_an_address_of_a_file_is_no_reference(make: Make) -> None:
    root = make({})
    secret = root / "secret"
    secret.write_text("t0psecret\n")
    secret.chmod(0o600)
    jar = root / "x.jar"
    jar.touch(0o600)
    addresses = {
        "spark.jars": f"file:{jar},file:/y.jar",
        "spark.files": f"file://{jar}",
        "spark.eventLog.dir": f"file:{secret}",
    }
    hidden = (
        "spark.ssl.keyPassword",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.azure.account.key.acme",
        "spark.driver.extraJavaOptions",
    )
    options = {"sasl.oauthbearer.token.endpoint.url": f"file://{secret}"}
    spark = addresses | dict.fromkeys(hidden, f"file:{secret}")
    for written in ({"spark": spark}, spark):
        (root / "conf/local.yaml").write_text(yaml.safe_dump({"kafka": options, **written}))
        found = load(root).conf
        assert found.kafka == options
        assert found.spark == addresses | dict.fromkeys(hidden, "t0psecret")


def test_a_secret_is_in_no_file_no_event_and_no_message(
    interpreted: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HEADWATER_TEST_JAAS", 'x.PlainLoginModule required password="t0psecret";')
    monkeypatch.setenv("HEADWATER_TEST_SECRET", "t0psecret")
    monkeypatch.setattr("headwater.connectors.kafka.topics.TIMEOUT", 0.5)
    secret = "env:HEADWATER_TEST_SECRET"
    options = {
        "kafka": {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": "env:HEADWATER_TEST_JAAS",
        },
        "librdkafka": {"sasl.username": "a", "sasl.password": secret, "socket.timeout.ms": 1000},
        "spark": {"spark.ssl.keyPassword": secret},
        "opensearch": {"logs": {"hosts": ["http://127.0.0.1:1"], "user": "a", "password": secret}},
        "postgres": {"dwh": {"host": "127.0.0.1", "port": 1, "password": secret}},
    }
    project = Tried(
        {
            "conf/local.yaml": yaml.safe_dump(options),
            "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
            "silver/readings.py": silver('raw.selectExpr("1 / usage AS n", "_source")'),
        },
        tmp_path,
        spark=interpreted,
    )
    said = [repr(project.definitions.conf.kafka)]
    assert "t0psecret" in said.pop()
    project.send("raw", [{"host": "a", "usage": 1.0}]).step()
    (tmp_path / "conf" / "local.yaml").write_text(yaml.safe_dump({**options, "cores": secret}))
    said.append(refusal("CONF_INVALID", tmp_path))
    (tmp_path / "conf" / "local.yaml").write_text(yaml.safe_dump(options))
    for command in (["ls"], ["describe", "silver.readings"], ["status"], ["kafka", "topics"], ["plan"]):
        said.append(CliRunner().invoke(app, [*command, "--project", str(tmp_path)]).output)
    said += [project.notices, repr(project.events), *capfd.readouterr()]
    said += [path.read_bytes().decode("utf-8", "replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(said) > 10 and [text for text in said if "t0psecret" in text] == []


def test_a_derived_table_has_no_retention_wherever_it_is_declared(make: Make) -> None:
    query = (
        "CREATE STREAMING TABLE hosts AS SELECT host, count(*) n FROM STREAM silver.readings GROUP BY host"
    )
    conf = "kafka: embedded\nmaintain: {tables: {bronze.hosts: {retention: 90 days}}}\n"
    root = make({"bronze/hosts.sql": query, "conf/local.yaml": conf})
    assert "key 'maintain.tables.bronze.hosts': its rows are derived" in refusal("CONF_INVALID", root)


def test_an_empty_secret_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make({})
    monkeypatch.setenv("HEADWATER_TEST_EMPTY", "")
    (root / "conf" / "local.yaml").write_text("kafka: {password: 'env:HEADWATER_TEST_EMPTY'}\n")
    assert "environment variable HEADWATER_TEST_EMPTY is empty" in refusal("SECRET_MISSING", root)
    secret = root / "secret"
    secret.touch(mode=0o600)
    (root / "conf" / "local.yaml").write_text(f"kafka: {{password: 'file:{secret}'}}\n")
    assert f"secret file {secret} is empty" in refusal("SECRET_MISSING", root)


def test_the_engine_keeps_its_folder_for_its_owner(make: Make) -> None:
    root = make({})
    for _ in range(2):
        load(root)
        assert (root / ".headwater").stat().st_mode & 0o777 == 0o700
        (root / ".headwater").chmod(0o755)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_lake_on_a_network_file_system_is_refused(kind: str) -> None:
    mounts = f"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:40 / /mnt/their\\040disk rw,relatime shared:2 - {kind} server:/x rw
24 23 8:2 / /mnt/their\\040disk/ours rw - xfs /dev/sdb rw
25 22 0:40 / /mnt/für\\040alle rw,relatime shared:2 - {kind} server:/x rw
"""
    file = Path("conf/local.yaml")
    for folder in ("/srv/lake", "/mnt/their disk/ours/lake", "/mnt/their disks/lake"):
        refuse_remote(Path(folder), file, mounts)
    with raises_code("LAKE_ON_NETWORK", match=f"local.yaml: the lake .* \\({kind}\\)", file=file):
        refuse_remote(Path("/mnt/their disk/lake"), file, mounts)
    with raises_code("LAKE_ON_NETWORK", file=file):
        refuse_remote(Path("/mnt/für alle/lake"), file, mounts)


def test_the_ports_of_spark_ask_for_a_secret(interpreted: SparkSession) -> None:
    security = interpreted._jsparkSession.sparkContext().env().securityManager()
    assert security.isAuthenticationEnabled() and len(security.getSecretKey()) > 30


def test_a_relative_lake_is_below_the_project(make: Make) -> None:
    root = make({"conf/local.yaml": "lake: ../elsewhere\n"})
    assert conf.load(root, "local").lake == Path(os.path.normpath(root / ".." / "elsewhere"))


# Analysis


def analyse(spark: SparkSession, root: Path) -> dict[str, Analysed]:
    return analysis.analyse(spark, load(root))


def test_what_analysis_tells(spark: SparkSession, make: Make) -> None:
    sql = "SELECT window.start AS since, host, avg(usage) AS mean FROM STREAM silver.readings "
    sql += "WATERMARK at DELAY OF INTERVAL 5 SECONDS GROUP BY window(at, '1 minute'), host"
    found = analyse(spark, make({"gold/t.sql": gold(sql)}))
    assert found["silver.readings"].columns.names == [
        "host",
        "usage",
        "at",
        "_rescued",
        "_source",
        "ingested_at",
    ]
    assert found["silver.readings"].keys == () and found["silver.readings"].aggregate is None
    assert found["gold.t"].columns.names == ["since", "host", "mean"]
    assert found["gold.t"].stored.names == ["since", "host", "mean", "_partial"]
    assert found["gold.t"].keys == ("since", "host")


def test_only_what_is_asked_for_is_analysed(spark: SparkSession, make: Make) -> None:
    root = make(
        {"gold/t.sql": gold("SELECT nothing, count(*) AS n FROM STREAM silver.readings GROUP BY nothing")}
    )
    found = analysis.analyse(spark, load(root), ["silver.readings"])
    assert set(found) - set(load(root).raw) == {"silver.readings"}
    with raises_code("DEFINITION_FAILED", match="nothing"):
        analyse(spark, root)


BY_MINUTE = (
    "SELECT window.start AS since, max(usage) AS most FROM STREAM silver.readings "
    "WATERMARK at DELAY OF INTERVAL 5 SECONDS GROUP BY window(at, '1 minute')"
)


def test_event_times_ahead_of_the_clock_are_guarded_where_a_watermark_sees_them(
    spark: SparkSession, make: Make
) -> None:
    alone = analyse(spark, make({}))["silver.readings"]
    assert alone.gate is None
    text = silver(more=", skew='1 hour'")
    below = analyse(spark, make({"gold/t.sql": gold(BY_MINUTE), "silver/readings.py": text}))
    gate = below["silver.readings"].gate
    assert gate is not None and [(rule.id, rule.action) for rule in gate.rules] == [("future", "quarantine")]
    times = [f"TIMESTAMP'2026-01-01 {at}'" for at in ("00:59:59", "01:00:00", "01:00:01")]
    values = ", ".join(f"({at}, TIMESTAMP'2026-01-01 00:00:00')" for at in (*times, "NULL"))
    columns = "CAST(NULL AS STRING) host, 1D usage, at, '' _rescued, NULL _source, ingested_at"
    rows = spark.sql(f"SELECT {columns} FROM VALUES {values} AS t(at, ingested_at)")
    assert [row["__verdict"] for row in gate.judge(rows).select("__verdict").collect()] == [0, 0, 2, 0]


def test_a_table_that_tells_the_time_keeps_when_it_was_ingested(spark: SparkSession, make: Make) -> None:
    root = make({"gold/t.sql": gold(BY_MINUTE), "silver/readings.py": silver("raw.drop('ingested_at')")})
    with raises_code(
        "REQUIRED_COLUMN_MISSING",
        table="silver.readings",
        match=r"silver\.readings drops the column ingested_at; keep it",
    ):
        analyse(spark, root)


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (
            ", skew='soon'",
            "INTERVAL_INVALID",
            "silver.readings: interval 'soon' is no span of time; write one such as",
        ),
        (
            ", on_error='explode'",
            "PROPERTY_INVALID",
            "silver.readings: on_error = 'explode'; known: bisect, stop",
        ),
    ],
)
def test_what_becomes_of_bad_records_is_said_in_known_words(
    make: Make, more: str, code: Code, says: str
) -> None:
    assert says in refusal(code, make({"silver/readings.py": silver(more=more)}))


def test_a_fingerprint_is_of_the_definition_and_its_suite(make: Make) -> None:
    null = '{"type": "expect_column_values_to_be_null", "kwargs": {"column": "%s"}}'
    suite = '{"name": "s", "expectations": [' + null + "]}"

    def mark(files: dict[str, str]) -> str:
        project = load(make(files))
        return analysis.fingerprint(project, project.tables["silver.readings"])

    marks = [
        mark({}),
        mark({"silver/readings.py": silver(more=", skew='1 hour'")}),
        mark({"quality/silver.readings.json": suite % "host"}),
        mark({"quality/silver.readings.json": suite % "usage"}),
    ]
    assert len(set(marks)) == 4


GOOD_BODIES = [
    "raw.where('usage > 1').withColumn('u', F.upper('host'))",
    "raw.union(raw)",
    "raw.withColumn('x', F.explode(F.array(F.lit(1), F.lit(2))))",
    "raw.join(hosts, 'host', 'left')",
    "raw.join(F.broadcast(hosts), 'host').join(hosts.alias('again').drop('site'), 'host')",
    "raw.join(hosts, 'host', 'left_anti')",
    "hosts.join(raw, 'host', 'right')",
    "raw.where('usage > 1').union(raw.where('usage < 0'))",
    "raw.join(hosts.union(hosts), 'host')",
    "raw.withColumnRenamed('at', 'a`t')"
    ".withColumn('w', hw.cumulative_windows('a`t', size='1 day', step='1 hour')).drop('a`t')",
    "raw.where(\"at > timestamp '2020-01-01' AND host NOT IN ('now', 'today') AND at > date 'epoch'\")",
    "raw.withColumn('x', F.expr(\"aes_encrypt(host, '0123456789abcdef', 'ecb')\"))",
    "raw.withColumn('x', F.aes_encrypt('host', F.lit('0' * 16), iv=F.unhex(F.lit('0' * 24))))",
    "raw.repartition(2).hint('broadcast').mapInPandas(lambda rows: rows, raw.schema)",
    "raw.mapInArrow(lambda rows: rows, raw.schema)",
]


@pytest.mark.parametrize("body", GOOD_BODIES)
def test_row_by_row_functions_are_taken(spark: SparkSession, make: Make, body: str) -> None:
    text = silver(body, source="['bronze.raw', 'reference.hosts']", arguments="raw, hosts")
    found = analyse(spark, make({"silver/readings.py": text, **HOSTS}))
    assert found["silver.readings"].aggregate is None


BAD_BODIES = [
    ("raw.select('host', 'nope', '_source')", "DEFINITION_FAILED", "`nope` cannot be resolved"),
    ("raw.nope", "DEFINITION_FAILED", "AttributeError"),
    (
        "nope",
        "DEFINITION_FAILED",
        "silver.readings: NameError: name 'nope' is not defined; mend the definition",
    ),
    (
        "raw.where(str(1 / 0))",
        "DEFINITION_FAILED",
        "ZeroDivisionError: division by zero; mend the definition",
    ),
    ("open('nowhere')", "DEFINITION_FAILED", "FileNotFoundError"),
    ("None", "NOT_A_DATAFRAME", "returns NoneType; return a DataFrame"),
    ("raw.drop('_source')", "REQUIRED_COLUMN_MISSING", "drops the column _source; keep it"),
    ("raw.select('*', 'host')", "COLUMN_TWICE", "column host comes twice; rename or drop one"),
    ("raw.withColumnRenamed('host', 'a`b')", "COLUMN_NOT_STORABLE", "column a`b has a backtick in its name"),
    ("raw.withColumn('x', F.lit(None))", "COLUMN_NOT_STORABLE", "column x has no type; cast it"),
    (
        "raw.withColumn('x', F.current_timestamp())",
        "NOT_REPEATABLE",
        "current_timestamp() differs when a batch is done again",
    ),
    (
        "raw.withColumn('x', F.now())",
        "NOT_REPEATABLE",
        "() differs when a batch is done again; use the column ingested_at",
    ),
    (
        "raw.withColumn('x', F.current_date())",
        "NOT_REPEATABLE",
        "current_date() differs when a batch is done again",
    ),
    ("raw.withColumn('x', F.unix_timestamp())", "NOT_REPEATABLE", "differs when a batch is done again"),
    ("raw.withColumn('x', F.rand())", "NOT_REPEATABLE", "differs when a batch is done again; take it out"),
    ("raw.withColumn('x', F.uuid())", "NOT_REPEATABLE", "differs when a batch is done again; take it out"),
    (
        "raw.withColumn('x', F.monotonically_increasing_id())",
        "NOT_REPEATABLE",
        "differs when a batch is done again; take it out",
    ),
    ("raw.where(F.rand() > 0.5)", "NOT_REPEATABLE", "differs when a batch is done again; take it out"),
    ("raw.sample(0.5)", "NOT_REPEATABLE", "a sample differs when a batch is done again; take it out"),
    (
        "raw.where(F.col('at') > F.lit('Yesterday').cast('timestamp'))",
        "NOT_REPEATABLE",
        "the time of 'Yesterday' differs when a batch is done again; use the column ingested_at",
    ),
    ("raw.where(\"at > timestamp_ltz ' now'\")", "NOT_REPEATABLE", "timestamp_ltz ' now' differs when"),
    ("raw.withColumn('x', F.to_date(F.lit('today')))", "NOT_REPEATABLE", "the time of 'today' differs"),
    ("raw.withColumn('x', F.current_user())", "NOT_REPEATABLE", "current_user() differs when a batch is"),
    (
        "raw.withColumn('x', F.aes_encrypt('host', F.lit('0' * 16)))",
        "NOT_REPEATABLE",
        "aes_encrypt() without an initialisation vector differs when",
    ),
    (
        "raw.withColumn('x', F.row_number().over(Window.partitionBy('host').orderBy('at')))",
        "ACROSS_ROWS",
        "a window function looks",
    ),
    ("raw.distinct()", "ACROSS_ROWS", "looks across rows, but would see one batch at a time"),
    ("raw.dropDuplicates(['host'])", "ACROSS_ROWS", "dropDuplicates looks across rows"),
    ("raw.orderBy('at')", "ACROSS_ROWS", "ORDER BY looks across rows"),
    ("raw.limit(3)", "ACROSS_ROWS", "LIMIT looks across rows"),
    (
        "raw.join(hosts, 'host', 'full')",
        "JOIN_REPEATS_ROWS",
        "this FullOuter join would repeat rows of a table in every batch",
    ),
    ("raw.join(hosts, 'host', 'right')", "JOIN_REPEATS_ROWS", "this RightOuter join would repeat rows"),
    ("hosts.join(raw, 'host', 'left')", "JOIN_REPEATS_ROWS", "this LeftOuter join would repeat rows"),
    ("hosts.join(raw, 'host', 'left_semi')", "JOIN_REPEATS_ROWS", "this LeftSemi join would repeat rows"),
    ("raw.select('host').union(hosts.select('host'))", "JOIN_REPEATS_ROWS", "this UNION would repeat rows"),
    ("hosts.union(hosts)", "JOIN_REPEATS_ROWS", "its rows follow from none of its stream"),
    (
        "raw.groupBy('host').applyInArrow(lambda rows: rows.select(['host']), 'host STRING')",
        "ACROSS_ROWS",
        "applyInArrow looks across rows",
    ),
    (
        "raw.alias('a').join(raw.alias('b').select('host'), 'host')",
        "ACROSS_ROWS",
        "a join of the stream with itself",
    ),
    (
        "raw.join(raw.groupBy('host').count(), 'host')",
        "AGGREGATE_NOT_OUTERMOST",
        "GROUP BY can't be maintained",
    ),
    (
        "raw.groupBy('host').agg(F.collect_list('usage').alias('u'))",
        "AGGREGATE_NOT_MAINTAINABLE",
        "can't be maintained from new rows alone",
    ),
    (
        "raw.distinct().groupBy('host').count()",
        "ACROSS_ROWS",
        "looks across rows, but would see one batch at a time",
    ),
    ("raw.limit(5).groupBy('host').count()", "ACROSS_ROWS", "LIMIT looks across rows"),
    (
        "raw.groupBy(F.window('at', '1 minute'), 'host').count()",
        "WATERMARK_MISSING",
        "has windows but no watermark",
    ),
]


@pytest.mark.parametrize(("body", "code", "says"), BAD_BODIES)
def test_what_a_stream_cannot_do_is_refused(
    spark: SparkSession, make: Make, body: str, code: Code, says: str
) -> None:
    text = silver(body, source="['bronze.raw', 'reference.hosts']", arguments="raw, hosts")
    root = make({"silver/readings.py": text, **HOSTS})
    with raises_code(code, table="silver.readings") as refused:
        analyse(spark, root)
    line = 11 if code == "DEFINITION_FAILED" else 10  # what failed, or the definition
    assert str(refused.value).startswith(f"{root}/silver/readings.py:{line}: silver.readings")
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        ("SELECT nope FROM STREAM silver.readings", "DEFINITION_FAILED", "`nope` cannot be resolved"),
        (
            "SELECT host, rand() AS r FROM STREAM silver.readings",
            "NOT_REPEATABLE",
            "rand() AS r differs when a batch is done again",
        ),
        (
            "SELECT host, current_timestamp AS t FROM STREAM silver.readings",
            "NOT_REPEATABLE",
            "current_timestamp() differs",
        ),
        ("SELECT DISTINCT host FROM STREAM silver.readings", "ACROSS_ROWS", "DISTINCT looks across rows"),
        ("SELECT host FROM STREAM silver.readings LIMIT 2", "ACROSS_ROWS", "LIMIT looks across rows"),
        (
            "SELECT host, row_number() OVER (ORDER BY at) AS r FROM STREAM silver.readings",
            "ACROSS_ROWS",
            "a window function looks across rows",
        ),
        (
            "SELECT host, count(*) n FROM (SELECT DISTINCT * FROM STREAM silver.readings) GROUP BY host",
            "ACROSS_ROWS",
            "DISTINCT looks across rows",
        ),
        (
            "SELECT a.host FROM STREAM silver.readings a JOIN STREAM silver.readings b ON a.host = b.host",
            "ACROSS_ROWS",
            "a join of the stream with itself would see one batch at a time",
        ),
        (
            "SELECT host FROM STREAM silver.readings WHERE host IN (SELECT host FROM STREAM silver.readings)",
            "ACROSS_ROWS",
            "a subquery on the stream would see one batch at a time",
        ),
        (
            "SELECT host, (SELECT host FROM reference.hosts) AS last, count(*) AS n "
            "FROM STREAM silver.readings GROUP BY host",
            "AGGREGATE_NOT_MAINTAINABLE",
            "last is looked up by a subselect",
        ),
        (
            "SELECT window.start s, count(*) n FROM STREAM silver.readings GROUP BY window(at, '1 minute')",
            "WATERMARK_MISSING",
            "has windows but no watermark; say how late rows may be",
        ),
        (
            "SELECT host, INTERVAL 1 MONTH AS i FROM STREAM silver.readings",
            "COLUMN_NOT_STORABLE",
            "which can't be stored; cast it",
        ),
    ],
)
def test_what_sql_on_a_stream_cannot_do_is_refused(
    spark: SparkSession, make: Make, query: str, code: Code, says: str
) -> None:
    root = make({"gold/t.sql": gold(query), **HOSTS})
    with raises_code(code, table="gold.t") as refused:
        analyse(spark, root)
    assert re.match(rf"{root}/gold/t\.sql:(\d+:)? gold\.t", str(refused.value))
    assert says in str(refused.value) and "\n" not in str(refused.value)


READ = "WITH x AS (SELECT host FROM STREAM silver.readings) SELECT x.host FROM x "


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("UNION ALL SELECT host FROM reference.hosts", "this UNION would repeat rows"),
        ("RIGHT JOIN reference.hosts h ON x.host = h.host", "this RightOuter join would repeat rows"),
        ("JOIN x AS y ON x.host = y.host", "a join of the stream with itself"),
        ("WHERE host IN (SELECT host FROM x)", "a subquery on the stream"),
        ("UNION ALL SELECT host FROM STREAM silver.readings", None),
        ("LEFT JOIN reference.hosts h ON x.host = h.host", None),
    ],
)
def test_a_with_clause_is_what_it_stands_for(
    spark: SparkSession, make: Make, query: str, says: str | None
) -> None:
    root = make({"gold/t.sql": gold(READ + query), **HOSTS})
    if says is None:
        analyse(spark, root)
        return
    with raises_code("JOIN_REPEATS_ROWS" if "repeat" in says else "ACROSS_ROWS", table="gold.t", match=says):
        analyse(spark, root)


V = "CREATE TEMPORARY VIEW v AS\nSELECT host FROM {}silver.readings;\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (gold("SELECT host FROM STREAM silver.readings\nUNION ALL SELECT host FROM silver.readings"), 2),
        (gold("SELECT r.host FROM STREAM silver.readings r\nJOIN silver.readings USING (host)"), 2),
        (V.format("") + gold("SELECT host FROM STREAM silver.readings UNION ALL SELECT * FROM v"), 3),
        (V.format("STREAM ") + gold("SELECT * FROM STREAM v UNION ALL SELECT host FROM silver.readings"), 3),
        (V.format("") + gold("SELECT host FROM STREAM silver.readings UNION ALL FROM STREAM v"), None),
        (V.format("STREAM ") + gold("SELECT * FROM STREAM v UNION ALL SELECT * FROM STREAM v"), None),
    ],
)
def test_a_table_is_read_by_stream_or_as_it_is(
    spark: SparkSession, make: Make, text: str, line: int | None
) -> None:
    root = make({"gold/t.sql": text})
    if line is None:
        analyse(spark, root)
        return
    with raises_code("STREAM_MISSING", table="gold.t", file="gold/t.sql") as refused:
        analyse(spark, root)
    assert str(refused.value).startswith(f"{root}/gold/t.sql:{line}: gold.t")
    assert "write FROM STREAM" in str(refused.value)


def test_a_view_of_a_sample_is_refused(spark: SparkSession, make: Make) -> None:
    text = "CREATE MATERIALIZED VIEW gold.t AS SELECT host FROM silver.readings TABLESAMPLE (5 PERCENT)"
    with raises_code(
        "STATEMENT_NOT_SUPPORTED", match="TABLESAMPLE takes other rows each time; filter: WHERE"
    ):
        analyse(spark, make({"gold/t.sql": text}))


def test_a_view_of_a_sample_in_python_is_refused(spark: SparkSession, make: Make) -> None:
    text = "import headwater as hw\n\n@hw.materialized_view(source='silver.readings')\n"
    text += 'def t(readings):\n    """Some."""\n    return readings.sample(0.05, seed=1)\n'
    with raises_code("NOT_REPEATABLE", table="gold.t", match="a sample differs"):
        analyse(spark, make({"gold/t.py": text}))


def test_keys_are_columns(spark: SparkSession, make: Make) -> None:
    with raises_code("KEY_UNKNOWN", table="silver.readings"):
        analyse(spark, make({"silver/readings.py": silver(more=", keys=['host', 'nope']")}))


@pytest.mark.parametrize(
    ("query", "by", "known"),
    [
        ("SELECT host, usage, count(*) AS n FROM STREAM silver.readings GROUP BY ALL", "n", "host"),
        ("SELECT host, usage, count(*) AS n FROM STREAM silver.readings GROUP BY ALL", "usage", "host"),
        ("SELECT host, usage FROM STREAM silver.readings", "host", "none"),
    ],
    ids=["no key", "no bounds", "no keys"],
)
def test_what_rows_are_clustered_by_is_a_key_that_has_bounds(
    spark: SparkSession, make: Make, query: str, by: str, known: str
) -> None:
    text = f"CREATE STREAMING TABLE gold.t TBLPROPERTIES ('headwater.cluster_by' = '{by}') AS {query}"
    with raises_code(
        "CLUSTERING_IMPOSSIBLE", table="gold.t", match=f"can't be clustered by {by}; known: {known}"
    ):
        analyse(spark, make({"gold/t.sql": text}))


def test_keys_of_an_aggregate_are_its_group_by(spark: SparkSession, make: Make) -> None:
    text = "CREATE STREAMING TABLE gold.t TBLPROPERTIES ('headwater.keys' = 'n') AS "
    text += "SELECT host, count(*) AS n FROM STREAM silver.readings GROUP BY host"
    with raises_code("KEYS_NOT_GROUP_BY", table="gold.t"):
        analyse(spark, make({"gold/t.sql": text}))


def test_tables_that_change_in_place_are_not_aggregated(spark: SparkSession, make: Make) -> None:
    files = {
        "gold/t.sql": gold("SELECT host, count(*) AS n FROM STREAM silver.readings GROUP BY host"),
        "gold/u.sql": "CREATE STREAMING TABLE gold.u AS SELECT sum(n) AS n FROM STREAM gold.t",
    }
    with raises_code(
        "INPUT_ROWS_CHANGE", table="gold.u", match=r"gold\.u aggregates gold\.t, whose rows change in place"
    ):
        analyse(spark, make(files))


def test_a_reference_without_columns_says_where_to_write_them(spark: SparkSession, make: Make) -> None:
    text = silver(
        "raw.join(hosts, 'host', 'left')", source="['bronze.raw', 'reference.hosts']", arguments="raw, hosts"
    )
    root = make({"silver/readings.py": text, "conf/reference/hosts.csv": "host\n"})
    with raises_code(
        "DDL_MISSING",
        file="reference/hosts.ddl",
        match=rf"{root}/conf/reference/hosts\.ddl: missing; write the columns",
    ):
        analyse(spark, root)


def fingerprint(spark: SparkSession, project: Project) -> str:
    return analysis.analyse(spark, project)["silver.readings"].fingerprint


def test_the_fingerprint_follows_the_definition(spark: SparkSession, make: Make) -> None:
    first = fingerprint(spark, load(make({})))
    assert fingerprint(spark, load(make({}))) == first
    assert fingerprint(spark, load(make({"silver/readings.py": "# a comment\n" + silver()}))) == first
    assert fingerprint(spark, load(make({"silver/readings.py": silver("raw.where('usage > 1')")}))) != first
    changed = silver().replace("usage DOUBLE", "usage FLOAT")
    assert fingerprint(spark, load(make({"silver/readings.py": changed}))) != first
