"""`read_kafka(option => 'value', …)`: which topic a bronze table is of."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

from headwater.project.sql.said import Kafka, Refused
from headwater.project.sql.statements import line_of

# Options that say nothing that a run does not do anyhow.
_NOTHING = {"startingoffsets": "earliest", "includeheaders": "true", "failondataloss": "true"}
_HINTS = {
    "startingoffsets": "leave it out; headwater run --start says where a new table begins",
    "maxoffsetspertrigger": "write TBLPROPERTIES ('headwater.max_rows_per_batch' = '100000')",
    "subscribepattern": "write subscribe => 'topic', and a table for each topic",
    "assign": "write subscribe => 'topic'",
}
_CONF = "the environment's file says how Kafka is reached: write it there, under kafka"


def read(text: str, tokens: Sequence[Token]) -> Kafka:
    """What a call says.

    Args:
        text: the file's.
        tokens: of the call, from its name to the parenthesis that closes it.

    Raises:
        Refused: no topic, several, or an option that is said elsewhere.
    """
    line = line_of(text, tokens[0].start)
    options: dict[str, str] = {}
    for argument in _arguments(tokens[2:-1]):
        name, arrow, *value = argument
        if arrow.token_type != TokenType.FARROW or len(value) != 1:
            raise _refused(
                line_of(text, name.start), "an option of read_kafka is no literal", "write name => 'value'"
            )
        options[name.text.lower()] = value[0].text
        known = {"bootstrapservers", "kafka.bootstrap.servers", "subscribe"}
        if name.text.lower() not in known and _NOTHING.get(name.text.lower()) != value[0].text.lower():
            hint = _HINTS.get(name.text.lower(), _CONF)
            raise _refused(line_of(text, name.start), f"the option {name.text} is not supported", hint)
    topic = options.get("subscribe", "")
    if not topic or "," in topic:
        what = "several topics" if topic else "no topic"
        raise _refused(line, f"read_kafka names {what}", "write subscribe => 'topic', and a table for each")
    servers = options.get("bootstrapservers") or options.get("kafka.bootstrap.servers", "")
    return Kafka(topic, servers)


def _arguments(tokens: Sequence[Token]) -> list[list[Token]]:
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.COMMA:
            found.append([])
        else:
            found[-1].append(token)
    return [argument for argument in found if len(argument) > 2]


def _refused(line: int, message: str, hint: str) -> Refused:
    return Refused(message, "STATEMENT_NOT_SUPPORTED", line=line, hint=hint)
