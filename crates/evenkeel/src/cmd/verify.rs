//! `evenkeel verify`.

use std::num::NonZeroUsize;

use evenkeel_quote::{path, shown};

use crate::cli::Verify;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;
use crate::verify::{Outcome, Wanted, sets};

/// Runs kept runs again, and says whether they are equal.
pub fn run(arguments: &Verify) -> Result<(), CliError> {
    let Verify { results, pages, scenarios, runs, jobs } = arguments;
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let wanted = Wanted { scenarios, pages, runs: *runs, jobs };
    let (mut equal, mut differ, mut left) = (0, 0, 0);
    for directory in sets(results)? {
        let (count, words) = match wanted.verify(&directory)? {
            Outcome::Equal { runs, of, pages } => {
                let pages: Vec<String> = pages.iter().map(|page| path(page).to_string()).collect();
                let noted = match pages.as_slice() {
                    _ if runs < of => "; a sample, nothing is noted".to_owned(),
                    [] => String::new(),
                    pages => format!("; noted in {}", pages.join(", ")),
                };
                (&mut equal, format!("{runs} of {of} runs, equal to the last digit{noted}"))
            }
            Outcome::Differs(how) => (&mut differ, format!("differs: {}", shown(&how))),
            Outcome::Left(why) => (&mut left, format!("not run: {why}")),
        };
        *count += 1;
        output::print(&format!("{}: {words}\n", path(&directory)))?;
    }
    output::print(&format!("{equal} sets are equal, {differ} differ, {left} were not run\n"))?;
    if differ == 0 { Ok(()) } else { Err(CliError::new(Exit::Failed, "runs of now differ from those that are kept")) }
}
