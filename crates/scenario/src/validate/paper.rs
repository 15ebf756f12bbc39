//! Checks that what a paper reports is of cells that exist, and can be held.

use evenkeel_quote::quoted;

use super::labels;
use crate::check::or_list;
use crate::error::Problem;
use crate::format::{Labels, PaperFigures, Scenario};
use crate::metric::{Better, Metric};

/// What is wrong with an entry of `[[paper]]` at this path.
pub(super) fn problems(scenario: &Scenario, path: &str, figures: &PaperFigures) -> Vec<Problem> {
    let mut problems = labels(scenario, &format!("{path}.cell"), &figures.cell);
    for (index, ratio) in figures.ratios.iter().enumerate() {
        let path = format!("{path}.ratios[{index}]");
        problems.extend(cell(scenario, &format!("{path}.of"), figures, [&ratio.of, &ratio.of]));
        problems.extend(cell(scenario, &format!("{path}.to"), figures, [&ratio.to, &ratio.of]));
        if ratio.of == ratio.to {
            problems.push(Problem::at(format!("{path}.to"), "must be another cell than `of`"));
        }
    }
    for (index, order) in figures.orders.iter().enumerate() {
        let path = format!("{path}.orders[{index}]");
        let better = Metric::named(Metric::split(&order.metric).1).map(|metric| metric.about().better);
        if better == Some(Better::Neutral) {
            let message = format!("of {} neither more nor less is better; state a ratio", quoted(&order.metric));
            problems.push(Problem::at(format!("{path}.metric"), message));
        }
        if order.cells.len() < 2 {
            problems.push(Problem::at(format!("{path}.cells"), "must be two cells or more"));
        }
        problems.extend(over(scenario, &format!("{path}.over"), figures, &order.over));
        for (place, own) in order.cells.iter().enumerate() {
            let path = format!("{path}.cells[{place}]");
            problems.extend(cell(scenario, &path, figures, [own, &order.cells[0]]));
            if order.cells[..place].contains(own) {
                problems.push(Problem::at(&path, "this cell is in the order already"));
            }
        }
    }
    problems
}

/// What is wrong with the cell by whose figures those of an order are divided.
fn over(scenario: &Scenario, path: &str, figures: &PaperFigures, over: &Labels) -> Vec<Problem> {
    let mut problems = labels(scenario, path, over);
    if !problems.is_empty() {
        return problems;
    }
    for (axis, label) in over.iter().filter(|(axis, label)| figures.cell.get(*axis).is_none_or(|own| own == *label)) {
        let message = match figures.cell.get(axis) {
            None => format!("says of axis {} what it divides by; `cell` must say what is divided", quoted(axis)),
            Some(_) => {
                format!("must be another label of axis {} than {}, which `cell` has", quoted(axis), quoted(label))
            }
        };
        problems.push(Problem::at(path, message));
    }
    problems
}

/// What is wrong with a cell of a ratio or an order: `own` is that cell, `first` the one whose axes it must name.
fn cell(scenario: &Scenario, path: &str, figures: &PaperFigures, [own, first]: [&Labels; 2]) -> Vec<Problem> {
    let mut problems = labels(scenario, path, own);
    if let Some(axis) = own.keys().find(|axis| figures.cell.contains_key(*axis)) {
        problems.push(Problem::at(path, format!("says of axis {} what `cell` says, too", quoted(axis))));
    }
    if !own.keys().eq(first.keys()) {
        let names: Vec<&String> = first.keys().collect();
        let message = format!("must say of the axis {} what it compares with, and of no other", or_list(&names));
        problems.push(Problem::at(path, message));
    }
    problems
}
