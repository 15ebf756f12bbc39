//! The papers' figures, tables and claims, each with what the kept runs say of it and a verdict by a written rule.
//!
//! Which rows there are stands in one file ([`rows`]); what the papers say, in the scenarios' `[[paper]]` tables; what
//! was measured, in directories of results by the scenarios' names. [`judge`] has the rule.

mod evidence;
mod judge;
mod mechanism;
mod page;
mod rows;

use std::path::{Path, PathBuf};

use evenkeel_scenario::result::Engine;

use crate::ReportError;
use crate::made::Codes;
use evidence::{Evidence, Experiment, Sets};
use judge::Verdict;
use rows::{OwnRow, Row};

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
    experiments: Vec<Experiment>,
}

/// The scorecard, and a page for each mechanism, as Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    /// The scorecard.
    pub card: String,
    /// File names and texts of the mechanisms' pages.
    pub mechanisms: Vec<(String, String)>,
}

/// The scorecard and its pages.
///
/// # Errors
/// [`ReportError::Read`] and [`ReportError::Rows`] for the rows, [`ReportError::Changes`], those of scenarios that
/// cannot be read, and those of [`crate::load`] for results that are there.
pub fn scorecard(parts: &Scorecard<'_>) -> Result<Pages, ReportError> {
    let (rows, scenarios) = rows::read(parts.rows, parts.scenarios)?;
    let sets = Sets::read(parts, scenarios)?;
    let judged = |row| Judged {
        row,
        sim: sets.of(row, Engine::Sim),
        lab: sets.of(row, Engine::Lab),
        experiments: sets.experiments(row),
    };
    let [figures, claims]: [Vec<Judged<'_>>; 2] =
        [&rows.figures, &rows.claims].map(|rows| rows.iter().map(judged).collect());
    let of_page = |page: &rows::MechanismPage| {
        let own: Vec<&OwnRow> = rows.own.iter().filter(|row| row.page == page.name).collect();
        (format!("{}.md", page.name), mechanism::render(page, &claims, &figures, &own, parts.pages))
    };
    Ok(Pages {
        card: page::render(&figures, &claims, &rows.pages),
        mechanisms: rows.pages.iter().map(of_page).collect(),
    })
}

impl Judged<'_> {
    /// The simulator's verdict, or the lab's if only the lab has runs. If the lab says "not", a row is "in part" at
    /// most.
    fn verdict(&self) -> Verdict {
        match (self.sim.verdict(), self.lab.verdict()) {
            (Verdict::NotMeasured, lab) => lab,
            (Verdict::ComesOut, Verdict::Not) => Verdict::InPart,
            (sim, Verdict::Not) => sim,
            (Verdict::InPart | Verdict::Not, _) if self.is_explained() => Verdict::Explained,
            (sim, _) => sim,
        }
    }

    /// Whether one experiment has all that does not hold, in the simulator and in the lab.
    fn is_explained(&self) -> bool {
        let mends = |experiment| [&self.sim, &self.lab].iter().all(|evidence| evidence.is_mended_by(experiment));
        self.sim.is_whole() && self.sim.has_failed() && self.experiments.iter().any(mends)
    }

    /// Whether any of the runs were made by other code, or of another scenario, than now.
    fn is_old(&self) -> bool {
        let experiments = self.experiments.iter().map(|experiment| &experiment.evidence);
        [&self.sim, &self.lab].into_iter().chain(experiments).any(Evidence::is_old)
    }
}
