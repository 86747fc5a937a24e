//! The flags of verbs that write a page and its data.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write the result to this file as JSON, or to stdout (-); the text then goes to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The folder for the page and the data, an .html and a .json file [default: a new folder
    /// contend-results/TIME-WORKLOAD; the link contend-results/latest leads to it]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite the files in the folder of --out
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
}
