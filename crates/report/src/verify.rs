//! Holds results that were kept against runs of the program as it is now.

use std::path::{Path, PathBuf};

use evenkeel_scenario::io;
use evenkeel_scenario::provenance::Again;
use evenkeel_scenario::result::RunRecord;

use crate::{ReportError, Results, is_parquet, keep, pages, write_parquet};

/// Positions of `wanted` of `of` runs, at equal distances: the first and the last of two or more.
pub fn sample(of: usize, wanted: usize) -> Vec<usize> {
    let wanted = wanted.min(of);
    (0..wanted).map(|number| if wanted == 1 { 0 } else { number * (of - 1) / (wanted - 1) }).collect()
}

/// The first difference between a run that was kept and the same run of now, in words; none if they are equal to the
/// last digit in all that was kept.
pub fn difference(results: &Results, kept: &RunRecord, mut now: RunRecord) -> Option<String> {
    keep::leave_out(&results.set, &mut now);
    if *kept == now {
        return None;
    }
    let was = |name: &String| kept.metrics.get(name).copied();
    let is = |name: &String| now.metrics.get(name).copied();
    let mut names = kept.metrics.keys().chain(now.metrics.keys());
    let of_metric = names.find(|name| was(name) != is(name));
    let value = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    let parts = [
        ("seed or duration", kept.seed == now.seed && kept.duration_us == now.duration_us),
        ("counters", kept.counters == now.counters),
        ("flows", kept.flows == now.flows),
        ("series", kept.series == now.series),
        ("packets", kept.packets == now.packets),
        ("remarks", kept.remarks == now.remarks),
    ];
    let of_part = parts.into_iter().find(|(_, is_equal)| !is_equal).map(|(name, _)| format!("other {name}"));
    of_metric.map(|name| format!("{name} was {} and is {}", value(was(name)), value(is(name)))).or(of_part)
}

/// Notes in the kept results, and in the pages that were made of them, that some of their runs were run again and are
/// equal. Returns the pages.
///
/// # Errors
/// Those of [`write_parquet`] and [`io::write_results`]; [`ReportError::Read`] and [`ReportError::Write`] for the
/// pages.
pub fn note_again(
    results: &Results,
    directory: &Path,
    pages_directory: &Path,
    again: &Again,
) -> Result<Vec<PathBuf>, ReportError> {
    let mut set = results.set.clone();
    let Some(made) = set.provenance.as_mut() else { return Ok(Vec::new()) };
    // What made them needs no witness.
    made.again = (made.program.code != again.program.code).then(|| again.clone());
    if set == results.set {
        return Ok(Vec::new());
    }
    if is_parquet(directory) {
        write_parquet(directory, &set, &results.records)?;
    } else {
        io::write_results(directory, &set, &results.records)?;
    }
    // A page has all runs, of which a set may be kept without some parts, and says nothing of that.
    pages::tell_pages(pages_directory, &results.scenario.name, [&results.set, &set])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_ends() {
        assert_eq!(sample(24, 3), [0, 11, 23]);
        assert_eq!(sample(2, 3), [0, 1]);
        assert_eq!((sample(5, 1), sample(0, 3)), (vec![0], Vec::new()));
    }
}
