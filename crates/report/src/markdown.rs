//! The table for the results pages of the docs.

use evenkeel_quote::shown;

use crate::view::{Cell, Column, View};
use crate::{claims, made, number};

/// Renders a heading, the table, and how to read it.
pub(crate) fn render(view: &View<'_>) -> String {
    let mut out = format!("### {}\n\n", escape(&view.scenario.title));
    out.push_str(&format!("Scenario `{}`", shown(&view.scenario.name).to_string().replace('`', "'")));
    if !view.scenario.source.is_empty() {
        out.push_str(&format!("; {}", escape(&view.scenario.source)));
    }
    out.push_str(&format!(". {}", view.reading()));
    if !view.scenario.paper.is_empty() {
        out.push_str(" In a cell with \"paper\": the paper's figure, and ours divided by it.");
    }
    out.push_str("\n\n");
    table(&mut out, view);
    stated(&mut out, view);
    let remarks: Vec<String> = view.remarks().iter().map(|text| escape(text)).collect();
    if !remarks.is_empty() {
        out.push('\n');
        remarks.iter().for_each(|remark| out.push_str(&format!("- {remark}\n")));
    }
    for paper in view.scenario.paper.iter().filter(|paper| !paper.note.is_empty()) {
        let note = format!("- {}: {}\n", escape(&paper.cited()), escape(&paper.note));
        if !out.contains(&note) {
            out.push_str(&note);
        }
    }
    out.push_str(&format!("\n{}. By: {}\n", escape(&made::in_words(view.set)), escape(&view.set.command)));
    if let Some(mark) = made::mark(view.set) {
        out.push_str(&format!("\n{mark}\n"));
    }
    out
}

/// Ratios and orders that papers state.
fn stated(out: &mut String, view: &View<'_>) {
    let claims = claims::claims(view);
    if claims.is_empty() {
        return;
    }
    out.push_str("\n| stated | by | paper | here |\n| --- | --- | ---: | ---: |\n");
    for claim in claims {
        let [stated, source] = [claim.stated(), claim.paper.cited()].map(|text| escape(&text));
        // Labels are the scenario's; a ratio alone needs no escapes.
        let here = if claim.is_ratio() { claim.here() } else { escape(&claim.here()) };
        out.push_str(&format!("| {stated} | {source} | {} | {here} |\n", claim.in_paper()));
    }
}

fn table(out: &mut String, view: &View<'_>) {
    let mut heading = String::from("|");
    let mut rule = String::from("|");
    for axis in &view.axes {
        heading.push_str(&format!(" {} |", escape(&axis.name)));
        rule.push_str(" --- |");
    }
    for column in &view.columns {
        heading.push_str(&format!(" {} |", escape(&column.heading())));
        rule.push_str(" ---: |");
    }
    out.push_str(&format!("{heading}\n{rule}\n"));
    for cell in &view.cells {
        out.push('|');
        cell.labels.iter().for_each(|label| out.push_str(&format!(" {} |", escape(label))));
        view.columns.iter().for_each(|column| out.push_str(&format!(" {} |", entry(view, cell, column))));
        out.push('\n');
    }
}

fn entry(view: &View<'_>, cell: &Cell<'_>, column: &Column) -> String {
    let here = cell.here(&column.name);
    let mut text = here.map_or_else(|| "\u{2013}".to_owned(), |here| column.shown(here, "\u{2013}"));
    if let Some(paper) = view.paper(cell, &column.name) {
        text.push_str(&format!("; paper {}", column.figure(paper.value)));
        if let Some(ratio) = here.and_then(|here| number::ratio(here.spread.median, paper.value)) {
            text.push_str(&format!(" ({ratio}\u{d7})"));
        }
    }
    text
}

/// Text that Markdown shows as it is.
pub(crate) fn escape(text: &str) -> String {
    let text = shown(text).to_string();
    let mut out = String::new();
    // A list, a heading or a rule begins only where a line does.
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    for (at, c) in text.char_indices() {
        let begins = match c {
            '-' | '+' | '=' => at == 0,
            '.' | ')' => at > 0 && at == digits,
            _ => false,
        };
        if begins || matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '~' | '$') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::escape;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(escape("a|b\nc `d` <e> &amp; ~~f~~"), r"a\|b\\nc \`d\` \<e\> \&amp; \~\~f\~\~");
        assert_eq!(escape("- a 1. b"), r"\- a 1. b");
        assert_eq!(escape("12. a - b"), r"12\. a - b");
    }

    proptest! {
        #[test]
        fn any_text_stays_in_its_cell(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(char::is_control));
            // What is left without the escapes opens and closes nothing.
            let mut chars = escaped.chars();
            while let Some(c) = chars.next() {
                match c {
                    '\\' => prop_assert!(chars.next().is_some()),
                    c => prop_assert!(!"|`*_[]<>#&~$".contains(c), "{escaped}"),
                }
            }
        }
    }
}
