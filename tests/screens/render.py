"""Paints the dashboards of deploy/grafana as pictures, without Grafana: one PNG each, with Chromium.

render.py PROMETHEUS FOLDER [--at SECONDS] [--minutes N] [--spans FILE] [--logs FILE]
          [--trace ID] [--task ID] [--only NAME]...

Queries go to the Prometheus at that address. Spans and records of logs are read from files, one as JSON on each line.
"""
import argparse
import json
import math
import pathlib
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request

import panels
import traces

BOARDS = pathlib.Path(__file__).parent.parent.parent / "deploy/grafana/dashboards"
WIDE, CELL, GAP, SCRAPE = 1600, 38, 8, 10
STYLE = """
body { margin: 0; background: #111217; color: #ccccdc; font: 12px 'DejaVu Sans', sans-serif; }
h1 { font-size: 16px; font-weight: 500; margin: 0; padding: 10px 12px; }
h1 small { color: #8e8e99; font-weight: normal; margin-left: 14px; }
.board { position: relative; } .at { position: absolute; }
.row { font-weight: bold; padding: 12px 10px; } .panel { background: #181b1f; border: 1px solid #2c2f36;
  box-sizing: border-box; position: relative; overflow: hidden; }
.title { padding: 7px 9px; height: 18px; font-weight: 500; white-space: nowrap; overflow: hidden; }
.stat { position: absolute; top: 32px; bottom: 34px; width: 100%; display: flex; align-items: center;
  justify-content: center; font-weight: 500; } .spark { position: absolute; bottom: 0; left: 0; }
.none { position: absolute; inset: 40px 0 30px; display: flex; align-items: center; justify-content: center;
  color: #8e8e99; } svg text { fill: #9a9aa6; font-size: 11px; } svg text.name { fill: #ccccdc; font-size: 12px; }
svg text[fill] { fill: #fade2a; }
.legend { position: absolute; bottom: 5px; left: 9px; right: 9px; font-size: 11px; line-height: 17px; }
.legend span { margin-right: 11px; display: inline-block; } .legend i { display: inline-block; width: 14px; height: 3px;
  border-radius: 2px; margin: 0 5px 3px 0; } .wrong { color: #f2495c; } table { border-collapse: collapse; width: 100%; }
th { color: #6e9fff; text-align: left; } td, th { padding: 4px 9px; border-bottom: 1px solid #2c2f36; }
.log { font: 11px 'DejaVu Sans Mono', monospace; line-height: 19px; padding-left: 8px; border-left: 4px solid;
  margin-left: 8px; white-space: nowrap; overflow: hidden; } .log em { color: #8e8e99; font-style: normal; }
"""


class Board:
    def __init__(self, file, options):
        self.board, self.o = json.loads(file.read_text()), options
        self.begin, self.end = options.at - options.minutes * 60, options.at
        self.variables = {"task": options.task, "trace": options.trace, "pool": ".*"}

    def ask(self, path, **values):
        url = f"{self.o.prometheus}/api/v1/{path}?{urllib.parse.urlencode(values)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]["result"]

    def filled(self, query, step=SCRAPE):
        query = query.replace("$__rate_interval", f"{max(step + SCRAPE, 4 * SCRAPE)}s")
        return re.sub(r"\$\{?(\w+)\}?", lambda it: self.variables.get(it[1], it[0]), query)

    def lines(self, panel, step):
        """What the panel draws: names and values over time."""
        begin, end = self.begin // step * step, self.end // step * step
        for target in panel["targets"]:
            query = self.filled(target["expr"], step)
            for it in self.ask("query_range", query=query, start=begin, end=end, step=step):
                labels = it["metric"]
                name = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda m: labels.get(m[1], ""), target.get("legendFormat", ""))
                name = name or "{" + ", ".join(f'{k}="{v}"' for k, v in labels.items()) + "}"
                yield {"name": name, "values": [(at, float(v)) for at, v in it["values"]]}

    def table(self, panel):
        """Rows of instant queries, merged by their labels, under the names that the panel gives the columns."""
        rows = {}
        for target in panel["targets"]:
            for it in self.ask("query", query=self.filled(target["expr"]), time=self.end):
                key = tuple(sorted(it["metric"].items()))
                row = rows.setdefault(key, dict(it["metric"]))
                row[f"Value #{target['refId']}"] = float(it["value"][1])
        how = next(it["options"] for it in panel["transformations"] if it["id"] == "organize")
        names = how["renameByName"]
        columns = [names.get(it, it) for it in sorted(how["indexByName"], key=how["indexByName"].get)]
        return columns, [{names.get(k, k): v for k, v in row.items()} for row in rows.values()]

    def paint(self, panel, width, height):
        kind, source = panel["type"], panel["targets"][0].get("datasource", {}).get("type")
        query = panel["targets"][0].get("query") or panel["targets"][0].get("expr")
        if source == "tempo" and kind == "traces":
            chosen = [span for span in self.o.spans if span["trace"] == self.o.trace]
            return traces.waterfall(panel, chosen, width, height)
        if source == "tempo":
            found = traces.found(self.filled(query), self.o.spans)
            extra = re.findall(r"span\.([\w.]+)", (query.split("select(") + [""])[1])
            rows = [{"Start time": time.strftime("%H:%M:%S", time.gmtime(it["start"] / 1e9)), "Trace": it["trace"][:12],
                     "Service": it["resource"].get("service.name"), "Name": it["name"],
                     "Duration": panels.show((it["end"] - it["start"]) / 1e9, "s")}
                    | {name: it["attributes"].get(name) for name in extra} for it in found]
            rows = rows[:max(1, (height - 70) // 24)]
            return panels.table(panel, list(rows[0]) if rows else [], rows, width, height)
        if source == "loki":
            records = [it for it in self.o.logs if self.begin <= it["at"] / 1e9 <= self.end]
            return traces.logs(panel, self.filled(query), records, width, height)
        if kind == "table":
            return panels.table(panel, *self.table(panel), width, height)
        minute = 60 if panel.get("interval") == "1m" else SCRAPE
        step = max(minute, math.ceil((self.end - self.begin) / max(width, 1) / SCRAPE) * SCRAPE)
        lines = list(self.lines(panel, step))
        if kind == "stat":
            return panels.stat(panel, lines, width, height)
        return panels.timeseries(panel, lines, width, height, self.begin, self.end, step)

    def html(self):
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.end))
        out, bottom = [], 0
        for panel in self.board["panels"]:
            place = panel["gridPos"]
            unit = (WIDE - GAP) / 24
            left, top = place["x"] * unit + GAP, place["y"] * CELL + 40
            width, height = int(place["w"] * unit - GAP), int(place["h"] * CELL - GAP)
            if panel["type"] == "row":
                inside = f'<div class="row">⌄ {panels.esc(panel["title"])}</div>'
            else:
                inside = self.paint(panel, width, height)
            bottom = max(bottom, top + height + GAP)
            out.append(f'<div class="at" style="left:{left:.0f}px;top:{top}px">{inside}</div>')
        head = f'<h1>{panels.esc(self.board["title"])}<small>{self.o.minutes} minutes to {at}</small></h1>'
        return f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style><div class="board">{head}{"".join(out)}</div>', bottom


def picture(text, height, file):
    page = file.with_suffix(".html")
    page.write_text(text)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or "google-chrome"
    subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    f"--window-size={WIDE},{height}", f"--screenshot={file.resolve()}", page.resolve().as_uri()],
                   check=True, capture_output=True, timeout=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prometheus")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--at", type=float, default=time.time())
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--spans", type=traces.read, default=[])
    parser.add_argument("--logs", type=traces.read, default=[])
    parser.add_argument("--trace", default="")
    parser.add_argument("--task", default="")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(BOARDS.glob("*.json")):
        if not options.only or file.stem in options.only:
            picture(*Board(file, options).html(), options.folder / f"{file.stem}.png")


if __name__ == "__main__":
    main()
