//! The flags of plain pgbench scripts: a workload without a workload file.

use std::path::{Path, PathBuf};

use clap::Args;
use contend_workloads::WorkloadFile;
use contend_workloads::file::{PlainScript, of_scripts};

use super::workload::rows;
use crate::UserError;
use crate::files::read_text;

/// The end of a script's name.
const SCRIPT: &str = ".sql";

#[derive(Debug, Args)]
pub(crate) struct ScriptArgs {
    /// A pgbench script with a whole weight, which is 1 if left out; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE.sql[@WEIGHT]", conflicts_with = "workload")]
    scripts: Vec<String>,
    /// The tables of pgbench scripts, in SQL
    #[arg(long, value_name = "FILE.sql")]
    schema: Option<PathBuf>,
    /// The loaded rows of a table of pgbench scripts, with keys from 1; may be repeated [default:
    /// 0, and for pgbench's own tables what NAME.scale says]
    #[arg(long = "rows", value_name = "TABLE=N", value_parser = rows, requires = "schema")]
    rows: Vec<(String, u64)>,
}

impl ScriptArgs {
    /// Returns these workloads, those that are scripts with the text of a workload file. The
    /// scripts of -f are one workload, in the place of all of them.
    ///
    /// # Errors
    /// As those of [`ScriptArgs::workload`].
    pub(crate) fn workloads(&self, workloads: Vec<String>) -> Result<Vec<(String, Option<String>)>, UserError> {
        if !self.scripts.is_empty() {
            return Ok(self.workload(None)?.into_iter().map(|(name, text)| (name, Some(text))).collect());
        }
        let is_script = |name: &String| name.ends_with(SCRIPT);
        if self.schema.is_some() && !workloads.iter().any(is_script) {
            self.workload(None)?;
        }
        let of = |name: String| match is_script(&name) {
            true => Ok(self.workload(Some(&name))?.map_or((name, None), |(name, text)| (name, Some(text)))),
            false => Ok((name, None)),
        };
        workloads.into_iter().map(of).collect()
    }

    /// Returns the name and the text of a workload file of the scripts; `None` if there is none.
    /// `workload` is the workload's name on the command line, which may be a script.
    ///
    /// # Errors
    /// A file can't be read, a weight is not valid, or there is no schema.
    pub(crate) fn workload(&self, workload: Option<&str>) -> Result<Option<(String, String)>, UserError> {
        let script = workload.filter(|name| name.ends_with(SCRIPT));
        let all: Vec<&str> = script.into_iter().chain(self.scripts.iter().map(String::as_str)).collect();
        let schema = match (&self.schema, all.first()) {
            (None, None) => return Ok(None),
            (Some(_), None) => {
                return Err(UserError::refused("--schema belongs to pgbench scripts; valid: FILE.sql, or -f FILE.sql"));
            }
            (None, Some(first)) => {
                return Err(UserError::refused(format!("{first} is a pgbench script, which needs --schema FILE.sql")));
            }
            (Some(schema), Some(_)) => read("schema", schema)?,
        };
        let mut scripts = Vec::new();
        for of in &all {
            let (path, weight) = match of.rsplit_once('@') {
                Some((path, weight)) => (path, weight_of(of, weight)?),
                None => (*of, 1),
            };
            let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let text = read("script", Path::new(path))?;
            scripts.push(PlainScript { name: stem.unwrap_or_default(), weight, text });
        }
        let rows = self.rows.iter().cloned().collect();
        let name = scripts[0].name.clone();
        let text = of_scripts(&name, &schema, &scripts, &rows).map_err(UserError::refused)?;
        Ok(Some((all.join("+"), text)))
    }
}

fn weight_of(script: &str, weight: &str) -> Result<u64, UserError> {
    const WEIGHT_MAX: u64 = 1_000_000;
    let parsed = weight.parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
    parsed.ok_or_else(|| {
        UserError::refused(format!(
            "-f {script}: the weight is '{weight}'; valid: a whole number from 0 to {WEIGHT_MAX}"
        ))
    })
}

fn read(what: &str, path: &Path) -> Result<String, UserError> {
    let text = read_text(path, WorkloadFile::BYTES_MAX, &format!("a {what}"));
    text.map_err(|error| UserError::refused(format!("the {what} {} can't be read: {error}", path.display())))
}
