"""Pages as people see them: on a phone and on a wide screen, in light and dark, on paper, by keyboard, and read out."""

import json
import time

import pytest
from axe_playwright_python.sync_playwright import Axe

PAGES = ["default", "kinds", "log", "contended", "chip", "open", "saturation", "advice", "failed", "partial", "hostile", "many", "experiment", "experiments", "sqlite", "mariadb", "litmus"]
SCREENS = [(360, "light"), (768, "light"), (1280, "light"), (1280, "dark")]
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# Only what is wrong is told: a report of all that is right takes as long as the rules.
RULES = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations"]}

# Texts of charts that stick out of their chart, or lie on one another.
MISPLACED = """() => [...document.querySelectorAll('.chart')].flatMap(chart => {
  const frame = chart.getBoundingClientRect(), found = [];
  const texts = [...chart.querySelectorAll('text')].filter(text => text.getClientRects().length && text.textContent.trim());
  const boxes = texts.map(text => [text.lastChild.textContent, text.getBoundingClientRect()]);
  for (const [name, box] of boxes)
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      found.push('out of its chart: ' + name);
  for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
    const a = boxes[i][1], b = boxes[j][1];
    if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + 4 < b.bottom && b.top + 4 < a.bottom)
      found.push('on one another: ' + boxes[i][0] + ' | ' + boxes[j][0]);
  }
  return found;
})"""
SMALL = """() => [...document.querySelectorAll('body *')].filter(node => [...node.childNodes].some(child =>
    child.nodeType == 3 && child.textContent.trim()) && node.getClientRects().length && !['TITLE', 'title'].includes(node.tagName)
    && parseFloat(getComputedStyle(node).fontSize) < 12).map(node => node.outerHTML.slice(0, 80))"""
UNNAMED = """() => [...document.querySelectorAll('svg[role=img]')].filter(svg => !svg.querySelector(':scope > title')?.textContent
    || !svg.getAttribute('aria-label') || !svg.closest('section')?.querySelector('table, pre')).map(svg => svg.outerHTML.slice(0, 80))"""


def opened(chromium, path, width=1280, scheme="light", contrast=None):
    """A page, and what it did that it must not do: ask for anything, complain, or run anything."""
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, contrast=contrast)
    page = context.new_page()
    wrong = []
    own = path.as_uri()
    page.on("request", lambda request: request.url == own or wrong.append(f"asks for {request.url}"))
    page.on("console", lambda message: wrong.append(f"says {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"fails: {error}"))
    page.goto(own)
    return page, wrong


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_can_be_read(chromium, pages, name, width, scheme):
    page, wrong = opened(chromium, pages[name], width, scheme)
    for unfolded in [False, True]:
        page.evaluate(f"document.querySelectorAll('details').forEach(details => details.open = {str(unfolded).lower()})")
        widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert widths[0] <= widths[1], f"the page is wider than the screen: {widths}"
        assert page.evaluate(MISPLACED) == []
        assert page.evaluate(SMALL) == []
    assert page.evaluate(UNNAMED) == []
    # A tablet's page is a wide one. The page of many entries has nothing of its own but their number, and is long to judge.
    if width != 768 and (name != "many" or width == 360):
        found = Axe().run(page, options=RULES)
        assert found.violations_count == 0, found.generate_report()
    assert wrong == [] and page.title() != "ran"
    page.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_small_and_soon_there(chromium, pages, name):
    assert pages[name].stat().st_size < 1_000_000
    begin = time.monotonic()
    page, _ = opened(chromium, pages[name])
    page.evaluate("document.body.offsetHeight")
    # Noted, not judged: this machine may be busy.
    print(f"{name}: {pages[name].stat().st_size} bytes, {time.monotonic() - begin:.2f} s")
    page.context.close()


@pytest.mark.parametrize("name", ["default", "kinds", "many", "experiment"])
def test_on_paper_nothing_is_folded_or_dark(chromium, pages, name):
    page, _ = opened(chromium, pages[name], scheme="dark")
    hidden = "[...document.querySelectorAll('details table')].filter(table => !table.checkVisibility({contentVisibilityAuto: true})).length"
    assert page.evaluate(hidden) > 0, "on a screen tables are folded"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    heights = "[...document.querySelectorAll('details table')].map(table => table.getBoundingClientRect().height)"
    assert min(page.evaluate(heights)) > 0
    assert page.pdf().startswith(b"%PDF")
    # An A4 sheet less its margins.
    page.set_viewport_size({"width": 718, "height": 1000})
    wide = "[...document.querySelectorAll('table, .chart')].filter(node => node.getBoundingClientRect().right > innerWidth).length"
    assert page.evaluate(wide) == 0
    page.context.close()


def test_more_contrast_is_given_to_those_who_ask(chromium, pages):
    page, _ = opened(chromium, pages["kinds"], contrast="more")
    colours = "[...document.querySelectorAll('figcaption, body')].map(node => getComputedStyle(node).color)"
    assert len(set(page.evaluate(colours))) == 1
    page.context.close()


def test_all_that_can_be_used_is_reached_by_keys_in_order(chromium, pages):
    page, _ = opened(chromium, pages["kinds"], width=360)
    wanted = page.evaluate("[...document.querySelectorAll('summary, a, .scroll')].filter(node => node.checkVisibility()).length")
    reached = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.getBoundingClientRect().top + scrollY"))
    assert wanted > 8 and reached == sorted(reached)
    page.keyboard.press("Shift+Tab")
    page.evaluate("document.querySelector('summary').focus()")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('details').open"), "a table unfolds by keys"
    page.context.close()


def test_a_phone_shows_each_verdict(chromium, pages):
    page, _ = opened(chromium, pages["default"], width=360)
    frame = page.evaluate("document.querySelector('.scroll').getBoundingClientRect().right")
    cells = page.evaluate("[...document.querySelectorAll('.scroll tbody tr')].slice(0, 18).map(row => [...row.cells]"
                          ".map(cell => [cell.textContent, cell.getBoundingClientRect().right]))")
    for row in cells:
        verdict = next(cell for cell in row if cell[0][0] in "✓✗◐○–")
        assert verdict[1] <= frame, row
    page.context.close()


def test_text_is_in_order_without_styles(chromium, pages):
    page, _ = opened(chromium, pages["kinds"])
    page.evaluate("document.querySelectorAll('style').forEach(style => style.remove())")
    text = page.inner_text("body")
    parts = ["contend · tpcc", "Ranking", "Throughput", "Windows", "Latency", "Aborts", "Time", "Types of transactions", "Proof",
             "The same again", "Configuration", "Environment"]
    places = [text.find(part) for part in parts]
    assert -1 not in places and places == sorted(places), list(zip(parts, places))
    page.context.close()


def test_figures_are_those_of_the_result(chromium, pages):
    result = json.loads((pages["kinds"].parent / "results.json").read_text())
    page, _ = opened(chromium, pages["kinds"])
    rows = page.evaluate("[...document.querySelector('table').tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))")
    assert len(rows) == len(result["protocols"])
    for row, entry in zip(rows, result["protocols"]):
        assert row[0] == entry["protocol"]
        tps = entry["measured"]["throughput_tps"]["median"]
        number, unit = row[3].split("\u00a0")
        shown = float(number) * {"k": 1e3, "M": 1e6}[unit]
        assert abs(shown - tps) <= tps * 0.01, (row, tps)
    title = page.evaluate("[...document.querySelectorAll('use title')].map(title => title.textContent)")
    assert any("p99.9 " in text for text in title) and any(" in round 1" in text for text in title)
    page.context.close()


def test_what_failed_is_shown_with_its_cycle(chromium, pages):
    page, _ = opened(chromium, pages["failed"], width=360)
    result = json.loads((pages["failed"].parent / "results.json").read_text())
    entry = next(entry for entry in result["protocols"] if entry["protocol"] == "broken")
    assert "✗ failed" in page.inner_text("table")
    cycle = page.evaluate("[...document.querySelectorAll('dd svg text')].map(text => text.lastChild.textContent)")
    for edge in entry["verification"]["cycle"]:
        assert f"T{edge['from']}" in cycle and edge["dependency"] in cycle and edge["key"] in cycle
        assert f"T{edge['from']}" in page.inner_text("dd pre")
    page.context.close()


def test_the_levels_of_a_database_are_those_of_the_result(chromium, pages):
    result = json.loads((pages["mariadb"].parent / "results.json").read_text())["sql"]
    page, _ = opened(chromium, pages["mariadb"], width=360)
    rows = page.evaluate("[...document.querySelector('table').tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))")
    assert [row[0] for row in rows] == [of["level"]["name"] for of in result["levels"]]
    for row, of in zip(rows, result["levels"]):
        assert row[1] == f"✓ kept {of['level']['promise']}"
        number, _, unit = row[2].partition("\u00a0")
        tps = of["measured"]["throughput_tps"]
        unit = {"": 1, "k": 1e3}[unit]
        # Half of the last digit that is shown: 4.3 k is anything from 4,250 on.
        assert abs(float(number) * unit - tps) <= max(tps * 0.01, 0.051 * unit), (row, tps)
    worst = {of["level"]["name"]: of["verified"]["worst"] for of in result["levels"]}
    assert worst["read-committed"]["class"] == "G-single" and worst["serializable"] is None
    told = page.inner_text("dl")
    for step in worst["read-committed"]["steps"]:
        assert f"T{step['txn']}" in told and step["reason"] in told.replace("\u00a0", " ")
    headings = page.evaluate("[...document.querySelectorAll('h2')].map(heading => heading.textContent)")
    assert headings == ["Throughput", "Latency", "Aborts", "Promises", "Anomalies", "Invariants", "What was lost", "The same again", "Configuration"]
    page.context.close()
    page, _ = opened(chromium, pages["sqlite"])
    text = page.inner_text("body")
    assert "200.0/s arrived" in text and "silo" in text and "secret7" not in text
    page.context.close()


@pytest.mark.parametrize("file", ["figure.svg", "published.svg"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_figure_stands_alone(chromium, pages, file, scheme):
    page, wrong = opened(chromium, pages["experiment"].parent / file, scheme=scheme)
    texts = page.evaluate("[...document.querySelectorAll('text')].map(text => text.textContent)")
    for part in ["cores", "add <b>", "1", "12", "16"] if file == "figure.svg" else ["cores", "another"]:
        assert part in texts, texts
    outside = """() => { const frame = document.documentElement.getBoundingClientRect();
      return [...document.querySelectorAll('text, use, line')].map(node => node.getBoundingClientRect())
        .filter(box => box.right > frame.right + 1 || box.bottom > frame.bottom + 1 || box.left < -1).length }"""
    assert page.evaluate(outside) == 0
    ground = page.evaluate("getComputedStyle(document.querySelector('svg > rect')).fill")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(27, 33, 41)")
    assert wrong == []
    page.context.close()
