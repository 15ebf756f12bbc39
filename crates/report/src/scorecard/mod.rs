//! The papers' figures, tables and claims, each with what the kept runs say of it and a verdict by a written rule.
//!
//! Which rows there are stands in one file ([`rows`]); what the papers say, in the scenarios' `[[paper]]` tables; what
//! was measured, in directories of results by the scenarios' names. [`judge`] has the rule.

mod evidence;
mod judge;
mod page;
mod rows;

use std::path::{Path, PathBuf};

use evenkeel_scenario::result::Engine;

use crate::ReportError;
use crate::made::Codes;
use evidence::{Evidence, Sets};
use judge::Verdict;
use rows::{Row, Rows};

/// Where a scorecard's parts are.
#[derive(Debug, Clone, Copy)]
pub struct Scorecard<'a> {
    /// The file with the rows.
    pub rows: &'a Path,
    /// The directory of the scenario files.
    pub scenarios: &'a Path,
    /// Directories of results by the scenarios' names; of each scenario, the first that has any counts.
    pub results: &'a [PathBuf],
    /// The directory of the pages that are linked to.
    pub pages: &'a Path,
    /// The code that results are current with.
    pub codes: &'a Codes,
}

/// A row with what there is of it.
struct Judged<'a> {
    row: &'a Row,
    sim: Evidence,
    lab: Evidence,
}

/// The scorecard as Markdown.
///
/// # Errors
/// [`ReportError::Read`] and [`ReportError::Rows`] for the rows, those of scenarios that cannot be read, and those of
/// [`crate::load`] for results that are there.
pub fn scorecard(parts: &Scorecard<'_>) -> Result<String, ReportError> {
    let (rows, scenarios) = rows::read(parts.rows, parts.scenarios)?;
    let sets = Sets::read(parts, scenarios)?;
    let judged = |row| Judged { row, sim: sets.of(row, Engine::Sim), lab: sets.of(row, Engine::Lab) };
    let Rows { figures, claims } = &rows;
    Ok(page::render(&figures.iter().map(judged).collect::<Vec<_>>(), &claims.iter().map(judged).collect::<Vec<_>>()))
}

impl Judged<'_> {
    /// The simulator's verdict, or the lab's where that alone has runs; the lab can take it down.
    fn verdict(&self) -> Verdict {
        match (self.sim.verdict(), self.lab.verdict()) {
            (Verdict::NotMeasured, lab) => lab,
            (Verdict::ComesOut, Verdict::Not) => Verdict::InPart,
            (sim, _) => sim,
        }
    }

    /// Whether any of the runs were made by other code, or of another scenario, than now.
    fn is_old(&self) -> bool {
        self.sim.is_old || self.lab.is_old
    }
}
