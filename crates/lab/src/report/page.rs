//! The frame of a page: its styles, tables and figures. A page is one HTML file without scripts,
//! and loads nothing from the network.

use std::fmt::Write;

use super::picture;

/// Returns a whole page with this body.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>{}{STYLE}</style></head>\n\
         <body>{}<main>\n{body}</main></body></html>\n",
        escape(title),
        picture::COLOURS,
        picture::definitions()
    )
}

/// The styles. All text has a contrast of at least 4.5 to its ground in both colour schemes, and is
/// at least 12 pixels high at any width.
const STYLE: &str = "
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:3rem 1.5rem 5rem}h1{font-size:1.15rem;font-weight:600;color:var(--soft);margin:0}
h2{font-size:1.1rem;margin:3rem 0 .2rem}.finding{font-size:1.75rem;line-height:1.3;margin:.4rem 0 1rem;font-weight:600}
.soft{color:var(--soft)}p{margin:.2rem 0 .8rem}.partial{border-left:4px solid var(--bad);padding:.3rem .8rem}
main{overflow-wrap:anywhere}table{overflow-wrap:normal}a{color:inherit}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.93rem}
caption{text-align:left;color:var(--soft);padding:.3rem 0}
th{font-weight:600;color:var(--soft);text-align:right;vertical-align:bottom;border-bottom:1px solid var(--line);padding:.4rem .5rem}
td,tbody th{text-align:right;vertical-align:top;border-bottom:1px solid var(--line);padding:.45rem .5rem;white-space:nowrap}
tbody th{color:var(--ink)}th.l,td.l{text-align:left}td.l{white-space:normal}td.long,th.long{min-width:12rem;white-space:normal;overflow-wrap:anywhere}
.o{white-space:nowrap}.scroll{overflow-x:auto}.good{color:var(--good)}.bad{color:var(--bad)}
figure{margin:.6rem 0}figcaption{color:var(--soft);margin:.2rem 0}.narrow{display:none}
.chart{background:var(--card);border:1px solid var(--line);border-radius:6px;overflow:hidden}.chart svg{display:block;width:100%;overflow:visible}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(13.5rem,1fr));gap:.6rem}
.panels p{margin:0;font-size:.85rem;overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;list-style:none;margin:.4rem 0;padding:0;font-size:.88rem}
.legend svg{vertical-align:-.15em;margin-right:.4em}
details{margin:.2rem 0 .8rem}summary{cursor:pointer;color:var(--soft);font-size:.93rem;padding:.25rem 0}
.heat1{background:color-mix(in srgb,var(--c1) 6%,transparent)}.heat2{background:color-mix(in srgb,var(--c1) 12%,transparent)}
.heat3{background:color-mix(in srgb,var(--c1) 19%,transparent)}.heat4{background:color-mix(in srgb,var(--c1) 27%,transparent)}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.8rem;white-space:pre-wrap;font-size:.85rem}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) 1fr;gap:.15rem 1rem;font-size:.93rem}
dt{color:var(--soft);overflow-wrap:anywhere;max-width:14rem}dd{margin:0;min-width:0}:focus-visible{outline:3px solid var(--focus);outline-offset:2px}
@media(max-width:40rem){main{padding:1.2rem 1rem 3rem}.finding{font-size:1.3rem}.wide{display:none}.narrow{display:inline}
dl{grid-template-columns:1fr}dd{margin:0 0 .4rem}table{font-size:.85rem}th,td,tbody th{padding:.35rem .25rem}}
@media print{main{max-width:none;padding:0}figure,.panels>*{break-inside:avoid}h2{break-after:avoid}
table{font-size:.62rem;overflow-wrap:anywhere}th,td,tbody th{padding:.2rem .25rem;white-space:normal}
details::details-content{content-visibility:visible;block-size:auto}.scroll{overflow:visible}}
";

/// Escapes text for HTML, both as content and as an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // Characters that would reverse the text behind them, or that are no text.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escaped.push('\u{fffd}'),
            '\n' | '\t' => escaped.push(character),
            control if control.is_control() => escaped.push('\u{fffd}'),
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => escaped.push(other),
        }
    }
    escaped
}

/// The units of figures that [`contend_runner::units`] writes.
const UNITS: [&str; 14] = ["%", "x", "k", "M", "G", "ns", "µs", "ms", "s", "bytes", "KiB", "MiB", "GiB", "GHz"];

/// Formats text for HTML so that no line breaks between a number and its unit, or within an option.
pub(crate) fn prose(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut before = "";
    for (number, word) in text.split(' ').enumerate() {
        if number > 0 {
            let unit = word.trim_end_matches([',', '.', ';', ':', ')']);
            let is_figure = before.ends_with(|last: char| last.is_ascii_digit()) && UNITS.contains(&unit);
            prose += if is_figure { "\u{a0}" } else { " " };
        }
        match word.contains("--") && word.chars().count() <= LONG {
            true => prose += &format!("<span class=\"o\">{}</span>", escape(word)),
            false => prose += &escape(word),
        }
        before = word;
    }
    prose
}

/// The length of a word from which it may break anywhere. The name of an entry with many options is
/// one word.
const LONG: usize = 24;

/// A table for a page.
pub(crate) struct Table {
    /// The description of the table, which is read out before it.
    caption: String,
    columns: Vec<Column>,
    rows: Vec<String>,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    name: String,
    is_text: bool,
    is_spare: bool,
}

impl Column {
    /// Creates a column of text.
    pub(crate) fn text(name: &str) -> Column {
        Column { name: name.into(), is_text: true, is_spare: false }
    }

    /// Creates a column of figures.
    pub(crate) fn figures(name: &str) -> Column {
        Column { name: name.into(), is_text: false, is_spare: false }
    }

    /// Leaves the column out on small screens. Its content must be found elsewhere.
    pub(crate) fn spare(self) -> Column {
        Column { is_spare: true, ..self }
    }

    fn class(&self, style: &str) -> String {
        let names = [if self.is_text { "l" } else { "" }, if self.is_spare { "wide" } else { "" }, style];
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        if names.is_empty() { String::new() } else { format!(" class=\"{}\"", names.join(" ")) }
    }
}

impl Table {
    /// Creates a table of these columns.
    pub(crate) fn new(caption: &str, columns: impl IntoIterator<Item = Column>) -> Table {
        Table { caption: caption.into(), columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row. The first cell names it.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.styled_row(cells.into_iter().map(|cell| (String::new(), cell)));
    }

    /// Adds a row whose cells have a class of style each.
    pub(crate) fn styled_row(&mut self, cells: impl IntoIterator<Item = (String, String)>) {
        let mut row = String::new();
        for (number, (column, (style, cell))) in self.columns.iter().zip(cells).enumerate() {
            let is_long = cell.chars().count() > LONG;
            let style = if is_long { format!("{style} long") } else { style };
            let class = column.class(style.trim());
            let (tag, scope) = if number == 0 { ("th", " scope=\"row\"") } else { ("td", "") };
            let _ = write!(row, "<{tag}{scope}{class}>{}</{tag}>", prose(&cell));
        }
        self.rows.push(row);
    }

    /// Whether it has no rows.
    #[cfg(feature = "sql")]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table as HTML. A table wider than the screen scrolls by itself, also by keys.
    pub(crate) fn html(&self) -> String {
        let label = escape(&self.caption);
        let head: String = self
            .columns
            .iter()
            .map(|column| format!("<th scope=\"col\"{}>{}</th>", column.class(""), escape(&column.name)))
            .collect();
        let mut text = format!(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\"><table><caption>{label}</caption>\
             <thead><tr>{head}</tr></thead><tbody>\n"
        );
        for row in &self.rows {
            let _ = writeln!(text, "<tr>{row}</tr>");
        }
        text + "</tbody></table></div>\n"
    }
}

/// Returns a chart under a heading, and its figures as a table that can be unfolded.
pub(crate) fn figure(title: &str, caption: &str, chart: &str, figures: &Table) -> String {
    if chart.is_empty() {
        return String::new();
    }
    format!(
        "<section><h2>{}</h2><figure><figcaption>{}</figcaption>{chart}</figure>\n\
         <details><summary>The figures as a table</summary>{}</details></section>\n",
        escape(title),
        prose(caption),
        figures.html()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_not_break_out_of_the_page() {
        assert_eq!(escape("<b a='1'>&\"</b>"), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;&lt;/b&gt;");
        assert_eq!(escape("a\u{202e}b\u{0}c\n"), "a\u{fffd}b\u{fffd}c\n", "nothing is turned round");
    }

    #[test]
    fn figures_stay_with_their_units() {
        assert_eq!(prose("at 1.2 µs, 4 threads (3 %); <b>"), "at 1.2\u{a0}µs, 4 threads (3\u{a0}%); &lt;b&gt;");
        assert_eq!(prose(" x 5  s"), " x 5  s");
        assert_eq!(prose("more (--windows)."), "more <span class=\"o\">(--windows).</span>");
    }

    #[test]
    fn a_table_has_heads_for_its_columns_and_rows() {
        let mut table =
            Table::new("a <b>", [Column::text("name"), Column::text("verdict").spare(), Column::figures("time")]);
        table.styled_row([("", "<x>"), ("good", "fine"), ("", "3 ns")].map(|(a, b)| (a.into(), b.into())));
        let html = table.html();
        for part in [
            "aria-label=\"a &lt;b&gt;\"",
            "<th scope=\"col\" class=\"l\">name</th><th scope=\"col\" class=\"l wide\">verdict</th><th scope=\"col\">time</th>",
            "<th scope=\"row\" class=\"l\">&lt;x&gt;</th><td class=\"l wide good\">fine</td><td>3\u{a0}ns</td>",
        ] {
            assert!(html.contains(part), "{html}");
        }
    }
}
