//! `contend compare`.

use contend_lab::{compare, report};

use super::{Json, deliver, interrupted, left_out};
use crate::args::CompareArgs;
use crate::files::{Target, folder};
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &CompareArgs) -> Result<Status, UserError> {
    let config = args.config()?;
    left_out(&config)?;
    let config = config.validated()?;
    let json = Json::new(args.measure.json.as_deref())?;
    let out = folder(&args.out)?;
    let (page, data) = (Target::new(&out.join("report.html"))?, Target::new(&out.join("results.json"))?);
    let stop = stop_on_interrupt()?;
    let result = match compare(&config, &stop, &Bars::default()) {
        Ok(result) => result,
        Err(error) => return interrupted(error, &stop, |status| status),
    };
    let html = report::html(&result, &show::command(&result, "compare"));
    let status = deliver(&result, &json, &[(&page, html), (&data, result.to_json())])?;
    let written = format!("report: {} · results: {}", page.path().display(), data.path().display());
    match json {
        Json::Stdout => show::complain(&written),
        _ => show::print(&format!("{written}\n"))?,
    }
    Ok(status)
}
