"""Paints a panel of Grafana's as HTML: a stat, lines or bars over time, or a table."""
import html
import math
import re
import time

GREY, PAPER = "#8e8e99", "#181b1f"
COLOURS = {"green": "#73bf69", "red": "#f2495c", "orange": "#ff9830", "yellow": "#fade2a", "blue": "#5794f2",
           "purple": "#b877d9", "text": "#ccccdc", "dark-red": "#c4162a", "semi-dark-red": "#e02f44",
           "dark-orange": "#fa6400", "light-blue": "#8ab8ff", "transparent": "transparent"}
# Of lines that have no colour of their own, in Grafana's order.
PALETTE = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0", "#37872d", "#fade2a",
           "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477"]


def esc(text):
    return html.escape(str(text), quote=True)


def digits(value, decimals):
    if decimals is None:
        size = abs(value)
        decimals = 0 if value == int(value) or size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
        text = f"{value:.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{decimals}f}"


def show(value, unit, decimals=None):
    """A value with its unit, as Grafana writes it."""
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞"
    if unit == "percentunit":
        return digits(value * 100, decimals) + "%"
    scales = {"s": [(1e-6, 1e-9, "ns"), (1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (60, 1, "s"), (3600, 60, "mins"),
                    (86400, 3600, "hours"), (math.inf, 86400, "days")],
              "bytes": [(1024, 1, "B"), (1 << 20, 1024, "KiB"), (1 << 30, 1 << 20, "MiB"),
                        (math.inf, 1 << 30, "GiB")],
              "short": [(1e3, 1, ""), (1e6, 1e3, "K"), (math.inf, 1e6, "Mil")]}
    if unit in scales:
        if value == 0:
            return "0 " + {"s": "s", "bytes": "B", "short": ""}[unit]
        _, by, name = next(it for it in scales[unit] if abs(value) < it[0])
        return f"{digits(value / by, decimals)} {name}".strip()
    suffix = unit.removeprefix("suffix:") if unit.startswith("suffix:") else {"ops": " ops/s"}.get(unit, "")
    return digits(value, decimals) + suffix


def graded(value, defaults):
    """The colour that the thresholds give a value."""
    colour = "text"
    for step in defaults.get("thresholds", {}).get("steps", []):
        if step["value"] is None or (value is not None and value >= step["value"]):
            colour = step["color"]
    return COLOURS[colour]


def frame(panel, width, height, inside):
    # Grafana shows the description when the pointer rests on the title; a picture has no pointer.
    return (f'<div class="panel" style="width:{width}px;height:{height}px"><div class="title">'
            f'{esc(panel["title"])}</div>{inside}</div>')


def stat(panel, lines, width, height):
    defaults = panel["fieldConfig"]["defaults"]
    values = lines[0]["values"] if lines else []
    if panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]:
        newest = next((v for _, v in reversed(values) if not math.isnan(v)), None)
    else:
        newest = values[-1][1] if values else None
    mapped = next((m["options"]["result"] for m in defaults.get("mappings", [])
                   if m["type"] == "special" and newest is not None and math.isnan(newest)), None)
    if newest is None:
        text, colour = defaults.get("noValue", "No data"), GREY
    elif mapped:
        text, colour = mapped["text"], COLOURS[mapped["color"]]
    else:
        text = show(newest, defaults.get("unit", "short"), defaults.get("decimals"))
        fixed = defaults.get("color", {}).get("fixedColor")
        colour = COLOURS[fixed] if fixed else graded(newest, defaults)
    spark, real = "", [(t, v) for t, v in values if not math.isnan(v)]
    if len(real) > 1 and panel["options"].get("graphMode") == "area":
        top, first, last = max(v for _, v in real) or 1, values[0][0], values[-1][0]
        x = lambda t: (t - first) / max(last - first, 1) * width
        points = " ".join(f"{x(t):.1f},{50 - v / top * 46:.1f}" for t, v in real)
        spark = (f'<svg class="spark" width="{width}" height="50"><polygon fill="{colour}" fill-opacity=".18" '
                 f'points="{x(real[0][0])},50 {points} {x(real[-1][0])},50"/>'
                 f'<polyline fill="none" stroke="{colour}" points="{points}"/></svg>')
    size = min(44, int(1.5 * width / max(len(text), 3)))
    return frame(panel, width, height, f'{spark}<div class="stat" style="color:{colour};font-size:{size}px">'
                                       f'{esc(text)}</div>')


def nice(low, high, count=5, base=10, least=0):
    """Round marks on an axis."""
    raw = max((high - low) / count or 1, least)
    power = base ** math.floor(math.log(raw, base) + 1e-9)
    steps = (1, 2, 2.5, 5, 10) if base == 10 else [2 ** it for it in range(11)]
    step = next(power * it for it in steps if power * it >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * it for it in range(first, math.floor(high / step + 1e-9) + 1)]


def coloured(line, number, overrides):
    for rule in overrides:
        if rule["matcher"]["id"] == "byName" and rule["matcher"]["options"] == line["name"]:
            for it in rule["properties"]:
                if it["id"] == "color":
                    return COLOURS[it["value"]["fixedColor"]]
    return PALETTE[number % len(PALETTE)]


def stacked(lines):
    """Each line on those below it: (name, [(time, bottom, top)])."""
    below = {}
    for line in lines:
        heights = []
        for at, value in line["values"]:
            bottom = below.get(at, 0)
            below[at] = bottom + (0 if math.isnan(value) else value)
            heights.append((at, bottom, math.nan if math.isnan(value) else below[at]))
        yield line, heights


def runs(points, step):
    """Parts of a line between its gaps."""
    run = []
    for point in points:
        if math.isnan(point[2]) or (run and point[0] - run[-1][0] > 1.5 * step):
            if run:
                yield run
            run = []
        if not math.isnan(point[2]):
            run.append(point)
    if run:
        yield run


def timeseries(panel, lines, width, height, begin, end, step):
    defaults, overrides = panel["fieldConfig"]["defaults"], panel["fieldConfig"]["overrides"]
    custom, unit = defaults.get("custom", {}), defaults.get("unit", "short")
    is_log = custom.get("scaleDistribution", {}).get("type") == "log"
    names = [line["name"] for line in lines]
    legend = "".join(
        f'<span><i style="background:{coloured(line, n, overrides)}"></i>{esc(line["name"])}</span>'
        for n, line in enumerate(lines))
    legend += "" if len(names) == len(set(names)) else '<b class="wrong">names that come twice</b>'
    values = [v for line in lines for _, v in line["values"] if not math.isnan(v) and not math.isinf(v)]
    if not values:
        text = defaults.get("noValue", "No data")
        return frame(panel, width, height, f'<div class="none">{esc(text)}</div><div class="legend">{legend}</div>')
    is_stack = custom.get("stacking", {}).get("mode") == "normal"
    drawn = list(stacked(lines)) if is_stack else [(l, [(t, 0, v) for t, v in l["values"]]) for l in lines]
    tops = [top for _, points in drawn for _, _, top in points if not math.isnan(top) and not math.isinf(top)]
    low = defaults.get("min", min(tops))
    high = defaults.get("max", max([*tops, custom.get("axisSoftMax", -math.inf)]))
    if is_log:
        low, high = min([v for v in values if v > 0], default=0.001), max(max(values), 1e-9)
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high) + 1e-9)
        high = high if high > low else low * 10
    elif high <= low:
        high = low + 1
    rows = 1 + int(sum(len(name) * 6.8 + 30 for name in names) / (width - 30))
    left, right, head, foot = 58, 12, 6, 27 + 17 * rows
    w, h = width - left - right, height - 32 - head - foot
    x = lambda t: left + (t - begin) / (end - begin) * w
    scale = (lambda v: (math.log10(max(v, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))) if is_log \
        else (lambda v: (v - low) / (high - low))
    y = lambda v: head + h - max(0, min(1, scale(v))) * h
    marks = [10 ** it for it in range(round(math.log10(low)), round(math.log10(high)) + 1)] if is_log \
        else nice(low, high, 5, 1024 if unit == "bytes" else 10, 1 if defaults.get("decimals") == 0 else 0)
    out = [f'<line x1="{left}" x2="{width - right}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#2c2f36"/>'
           f'<text x="{left - 5}" y="{y(v) + 4:.1f}" text-anchor="end">{esc(show(v, unit, defaults.get("decimals")))}'
           '</text>' for v in marks]
    for at in nice(0, (end - begin) / 60, 6):
        clock = time.strftime("%H:%M", time.gmtime(begin + at * 60))
        out.append(f'<text x="{x(begin + at * 60):.1f}" y="{head + h + 15}" text-anchor="middle">{clock}</text>')
    if custom.get("thresholdsStyle", {}).get("mode", "off") != "off":
        for it in defaults["thresholds"]["steps"]:
            if it["value"] is not None and low <= it["value"] <= high:
                out.append(f'<line x1="{left}" x2="{width - right}" y1="{y(it["value"]):.1f}" y2="{y(it["value"]):.1f}"'
                           f' stroke="{COLOURS[it["color"]]}" stroke-dasharray="8 5"/>')
    style, fill = custom.get("drawStyle", "line"), custom.get("fillOpacity", 0) / 100
    for number, (line, points) in enumerate(drawn):
        colour = coloured(line, number, overrides)
        dash = any(rule["matcher"]["id"] == "byRegexp"
                   and re.search(rule["matcher"]["options"].strip("/"), line["name"])
                   and any(it["id"] == "custom.lineStyle" for it in rule["properties"]) for rule in overrides)
        for run in runs(points, step):
            if style == "bars":
                wide = max(step / (end - begin) * w * 0.7, 2)
                out += [f'<rect x="{x(t) - wide / 2:.1f}" width="{wide:.1f}" y="{y(top):.1f}" fill="{colour}" '
                        f'height="{max(y(bottom) - y(top), 0):.1f}" fill-opacity="{fill}" stroke="{colour}"/>'
                        for t, bottom, top in run if top > bottom]
                continue
            if style == "points" or len(run) == 1:
                out += [f'<circle cx="{x(t):.1f}" cy="{y(top):.1f}" r="3" fill="{colour}"/>' for t, _, top in run]
                continue
            if custom.get("lineInterpolation") == "stepAfter":
                run = [p for a, b in zip(run, run[1:]) for p in (a, (b[0], a[1], a[2]))] + run[-1:]
            upper = " ".join(f"{x(t):.1f},{y(top):.1f}" for t, _, top in run)
            lower = " ".join(f"{x(t):.1f},{y(max(bottom, low)):.1f}" for t, bottom, _ in reversed(run))
            out.append(f'<polygon points="{upper} {lower}" fill="{colour}" fill-opacity="{fill}"/>'
                       f'<polyline points="{upper}" fill="none" stroke="{colour}" stroke-width="1.4"'
                       + (' stroke-dasharray="6 4"' if dash else "") + "/>")
    return frame(panel, width, height, f'<svg width="{width}" height="{head + h + 18}">{"".join(out)}</svg>'
                                       f'<div class="legend">{legend}</div>')


def table(panel, columns, rows, width, height):
    """Rows are maps from column to text or number; overrides say how a column is shown."""
    defaults, of = panel["fieldConfig"]["defaults"], {}
    for rule in panel["fieldConfig"]["overrides"]:
        of[rule["matcher"]["options"]] = {it["id"]: it["value"] for it in rule["properties"]}
    for order in reversed(panel["options"].get("sortBy", [])):
        rows = sorted(rows, key=lambda row: row.get(order["displayName"], -1), reverse=order.get("desc", False))
    body = ""
    for row in rows:
        body += "<tr>"
        for column in columns:
            value, own = row.get(column), of.get(column, {})
            ground = "transparent"
            if isinstance(value, float):
                if "custom.cellOptions" in own:
                    ground = graded(value, {"thresholds": own.get("thresholds", {})})
                value = show(value, own.get("unit", defaults.get("unit", "short")), own.get("decimals"))
            for mapping in own.get("mappings", []):
                ground = COLOURS.get(mapping["options"].get(value, {}).get("color"), ground)
            body += f'<td style="background:{ground}">{esc(defaults.get("noValue", "") if value is None else value)}</td>'
        body += "</tr>"
    head = "".join(f"<th>{esc(it)}</th>" for it in columns)
    inside = f"<table><tr>{head}</tr>{body}</table>" if rows \
        else f'<div class="none">{esc(defaults.get("noValue", "No data"))}</div>'
    return frame(panel, width, height, inside)
