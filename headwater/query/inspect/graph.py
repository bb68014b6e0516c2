"""The graph of a project, drawn: for a terminal, and as Mermaid."""

from __future__ import annotations

from headwater.project.load import Project


def edges(project: Project) -> list[tuple[str, str]]:
    """Every arrow of the graph, from what is read to what reads it; topics of Kafka are `kafka:<topic>`,
    files `files:<pattern>`."""
    arrows = [(f"kafka:{t.topic}", t.name) for t in project.topics.values()]
    arrows += [(f"files:{f.pattern}", f.name) for f in project.files.values()]
    arrows += [(source, t.name) for t in project.tables.values() for source in t.sources]
    for alert in project.alerts.values():
        topic = project.topics[alert.source].topic
        arrows += [(f"kafka:{topic}", alert.name), (alert.name, f"kafka:{alert.topic}")]
    arrows += [(sink.table, sink.target) for sink in project.sinks.values()]
    return arrows


def terminal(project: Project) -> str:
    """The graph as an indented tree, one line per node, from Kafka's topics down."""
    arrows = edges(project)
    below: dict[str, list[str]] = {}
    for source, target in arrows:
        below.setdefault(source, []).append(target)
    roots = list(dict.fromkeys(s for s, _ in arrows if s not in {t for _, t in arrows}))
    lines: list[str] = []

    def draw(node: str, prefix: str, tail: str) -> None:
        lines.append(f"{prefix}{tail}{node}")
        deeper = prefix + {"": "", "├─ ": "│  ", "└─ ": "   "}[tail]
        children = below.get(node, [])
        for at, child in enumerate(children):
            draw(child, deeper, "└─ " if at == len(children) - 1 else "├─ ")

    for root in roots:
        draw(root, "", "")
    return "\n".join(lines)


def mermaid(project: Project) -> str:
    """The graph as a Mermaid flowchart."""
    arrows = edges(project)
    ids = {node: f"n{at}" for at, node in enumerate(dict.fromkeys(n for arrow in arrows for n in arrow))}
    lines = ["flowchart LR"]
    for node, short in ids.items():
        lines.append(f'  {short}(["{node[6:]}"])' if node.startswith("kafka:") else f'  {short}["{node}"]')
    lines += [f"  {ids[source]} --> {ids[target]}" for source, target in arrows]
    return "\n".join(lines)
