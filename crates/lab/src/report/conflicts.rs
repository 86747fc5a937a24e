//! The conflict map of each entry: places by types of transactions, and the hottest keys.

use super::page::{Column, Table, escape, prose};
use crate::conflicts::{self, mapped};
use crate::result::ResultFile;
use contend_runner::units::show_percent;

/// The places of the overview. The tables of the entries have all of them.
const PLACES_MAX: usize = 12;

/// Returns the maps of all entries, or nothing if there was no conflict.
pub(super) fn maps(result: &ResultFile) -> String {
    let entries: Vec<_> = mapped(result).map(|(entry, map)| (entry, map.by_place())).collect();
    let mut places: Vec<(&str, f64)> = Vec::new();
    for (name, share, _) in entries.iter().flat_map(|(_, places)| places) {
        match places.iter_mut().find(|known| known.0 == name) {
            Some(known) => known.1 = known.1.max(*share),
            None => places.push((name, *share)),
        }
    }
    if places.is_empty() {
        return String::new();
    }
    places.sort_by(|a, b| b.1.total_cmp(&a.1));
    places.truncate(PLACES_MAX);
    let columns = [Column::text("protocol")].into_iter().chain(places.iter().map(|(name, _)| Column::figures(name)));
    let mut overview = Table::new("Conflict map: shares of the aborts by place", columns);
    for (entry, by_place) in &entries {
        let share_of = |place: &str| by_place.iter().find(|(name, ..)| name == place).map_or(0.0, |place| place.1);
        let cells = places.iter().map(|(name, _)| (heat(share_of(name)).into(), show_percent(share_of(name))));
        overview.styled_row([(String::new(), entry.protocol.clone())].into_iter().chain(cells));
    }
    let details = mapped(result).map(|(entry, map)| {
        format!(
            "<details><summary>{}: places by type of transaction, and the hottest keys</summary>{}{}</details>\n",
            escape(&entry.protocol),
            heated(&format!("Aborts of {} by place", entry.protocol), &conflicts::places(map)).html(),
            super::charts::table(&format!("Hottest keys of {}", entry.protocol), &conflicts::keys(map)).html()
        )
    });
    let caption = "Where the aborts came from: each cell is the share of a protocol's aborts by conflicts that arose at \
                   this table, and at these columns if they have versions of their own. An abort that belongs to no \
                   record, such as a deadlock, has no place. Keys are counted by a sketch, so each count has an upper \
                   and a lower bound.";
    format!(
        "<section><h2>Conflict map</h2><p class=\"soft\">{}</p>{}{}</section>\n",
        prose(caption),
        overview.html(),
        details.collect::<String>()
    )
}

/// Returns the class of style of a cell with this share. The figure stands in the cell as well.
fn heat(share: f64) -> &'static str {
    match share {
        share if share >= 0.5 => "heat4",
        share if share >= 0.2 => "heat3",
        share if share >= 0.05 => "heat2",
        share if share > 0.0 => "heat1",
        _ => "",
    }
}

/// Returns a table whose cells of shares are coloured.
fn heated(caption: &str, sheet: &crate::tables::Sheet) -> Table {
    let columns = sheet.columns.iter().enumerate().map(|(number, name)| match number < sheet.names {
        true => Column::text(name),
        false => Column::figures(name),
    });
    let mut table = Table::new(caption, columns);
    for row in &sheet.rows {
        table.styled_row(row.iter().enumerate().map(|(number, cell)| {
            let share = cell.trim_end_matches(" %").parse::<f64>().unwrap_or(0.0) / 100.0;
            (if number < sheet.names { String::new() } else { heat(share).into() }, cell.clone())
        }));
    }
    table
}
