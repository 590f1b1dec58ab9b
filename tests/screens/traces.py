"""What a dashboard asks of Tempo and of Loki, answered from files: a span, or a record of a log, on each line.

A span has `span`, `parent`, `trace`, `name`, `start`, `end` (in ns), `status` (2: error), `attributes`, `resource` and
`events` (each with `name` and `at`). A record has `at` (in ns), `severity_text`, `body`, `attributes`, and its labels.
"""
import json
import re
import time

import panels
from panels import esc

SHADES = {"tenure-scheduler": "#5794f2", "tenure-worker": "#73bf69"}


def read(file):
    return [json.loads(line) for line in open(file)] if file else []


def holds(condition, attributes):
    name, sign, value = re.fullmatch(r'\s*(?:span\.)?([\w.]+)\s*(=~|>=|!=|=)\s*"?([^"]*)"?\s*', condition).groups()
    have = attributes.get(name, "")
    if sign == ">=":
        return have != "" and float(have) >= float(value)
    same = re.fullmatch(value, str(have)) is not None if sign == "=~" else str(have) == value
    return same != (sign == "!=")


def found(query, spans):
    """Spans of a query such as `{ span.a = "x" && span.b >= 0 } | select(span.c)`, newest first."""
    conditions = re.search(r"\{(.*?)\}", query).group(1).split("&&")
    those = [span for span in spans if all(holds(it, span["attributes"]) for it in conditions)]
    return sorted(those, key=lambda span: -span["start"])


def logs(panel, query, records, width, height):
    """Records of `{label} | label = "value" | …`, newest first."""
    conditions = re.findall(r'[\w.]+\s*(?:=~|!=|=)\s*"[^"]*"', query)
    those = [it for it in records if all(holds(c, it) for c in conditions)]
    lines = ""
    for it in sorted(those, key=lambda it: -it["at"])[:max(1, (height - 40) // 19)]:
        colour = {"ERROR": "red", "WARN": "orange"}.get(it["severity_text"], "green")
        fields = " ".join(f"{name}={value}" for name, value in it["attributes"].items() if name != "target")
        clock = time.strftime("%H:%M:%S", time.gmtime(it["at"] / 1e9))
        lines += (f'<div class="log" style="border-color:{panels.COLOURS[colour]}">{clock} {esc(it["body"])} '
                  f'<em>{esc(fields)}</em></div>')
    return panels.frame(panel, width, height, lines or '<div class="none">No data</div>')


def rooted(spans):
    """(depth, span), each below its parent, in the order of time."""
    below = {}
    ids = {span["span"] for span in spans}
    for span in sorted(spans, key=lambda span: (span["start"], -span["end"])):
        below.setdefault(span["parent"] if span["parent"] in ids else None, []).append(span)

    def walk(parent, depth):
        for span in below.get(parent, []):
            yield depth, span
            yield from walk(span["span"], depth + 1)

    return list(walk(None, 0))


def waterfall(panel, spans, width, height):
    rows, names = rooted(spans), 0.36 * width
    if not rows:
        return panels.frame(panel, width, height, '<div class="none">No data</div>')
    begin, end = min(s["start"] for _, s in rows), max(s["end"] for _, s in rows)
    x = lambda at: names + (at - begin) / max(end - begin, 1) * (width - names - 90)
    out = []
    for number, (depth, span) in enumerate(rows[:max(1, (height - 40) // 20)]):
        top, colour = number * 20, SHADES.get(span["resource"].get("service.name"), "#b877d9")
        is_error = span["status"] == 2
        mark = ' <tspan fill="#f2495c">(!)</tspan>' if is_error else ""
        wide = max(x(span["end"]) - x(span["start"]), 1.5)
        out.append(f'<text x="{10 + depth * 16}" y="{top + 14}" class="name">{esc(span["name"])}{mark}</text>'
                   f'<rect x="{x(span["start"]):.1f}" y="{top + 4}" width="{wide:.1f}" height="11" rx="2" '
                   f'fill="{colour}" stroke="{"#f2495c" if is_error else "none"}" stroke-width="2"/>'
                   f'<text x="{x(span["end"]) + 6:.1f}" y="{top + 14}">'
                   f'{panels.show((span["end"] - span["start"]) / 1e9, "s")}</text>')
        for event in span["events"]:
            at = x(event["at"])
            out.append(f'<path d="M{at:.1f},{top + 2} l4,8 l-4,8 l-4,-8 z" fill="#fade2a" stroke="#000"/>'
                       f'<text x="{at + 6:.1f}" y="{top + 14}" fill="#fade2a">{esc(event["name"])}</text>')
    return panels.frame(panel, width, height, f'<svg width="{width}" height="{len(out) * 20}">{"".join(out)}</svg>')
