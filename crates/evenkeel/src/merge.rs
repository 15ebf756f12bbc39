//! Puts the shards of a sweep together, writes the results, and shows them.

use std::path::PathBuf;

use evenkeel_report::Results;
use evenkeel_scenario::Scenario;
use evenkeel_scenario::batch::kept::KeptError;
use evenkeel_scenario::batch::{MergeError, Merged, merge as put_together, whole_directory};

use crate::batch;
use crate::cli::Format;
use crate::error::CliError;
use crate::exit::Exit;
use crate::show;

/// Which shards to put together, and where the results go.
pub struct Joined<'a> {
    /// Directories of shards, or with shards in them.
    pub shards: &'a [PathBuf],
    /// Where results go.
    pub out: Option<PathBuf>,
    /// Whether results of another sweep that are there may be replaced.
    pub replace: bool,
    /// Format of the result files.
    pub format: Format,
    /// Whether results are printed as JSON.
    pub json: bool,
}

/// Puts shards together, and shows the results.
pub fn merge(joined: Joined<'_>) -> Result<(), CliError> {
    let Joined { shards, out, replace, format, json } = joined;
    let several = || {
        let what = "the shards are in several directories";
        CliError::new(Exit::Usage, what).help("--out says where the results go")
    };
    let out = out.or_else(|| whole_directory(shards)).ok_or_else(several)?;
    let Merged { records, kept } = put_together(shards, &out, replace).map_err(of_merge)?;
    let set = kept.set().clone();
    let scenario = Scenario::from_str(&set.scenario_toml, &out)?.scenario;
    let results = Results { set, scenario, records };
    batch::write(&out, &results, format)?;
    let _lock = kept.complete().map_err(|error| CliError::new(Exit::Failed, error.to_string()))?;
    show::write_and_show(&out, &results, json)
}

fn of_merge(error: MergeError) -> CliError {
    let what = error.to_string();
    match error {
        MergeError::Scenario(error) => error.into(),
        MergeError::Kept(KeptError::Other { .. }) => {
            CliError::new(Exit::Failed, what).help("--restart replaces what is there; --out names another directory")
        }
        MergeError::Kept(_) => CliError::new(Exit::Failed, what),
        MergeError::Foreign(_) => {
            CliError::new(Exit::Usage, what).help("name directories that `evenkeel sweep --shard` has made")
        }
        MergeError::Incomplete(_) => CliError::new(Exit::Failed, what)
            .help("`evenkeel sweep FILE --shard I/N` runs what is missing of a shard, and keeps the rest"),
    }
}
