//! The scorecard, of invented runs and of the repository's own rows.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_report::{Codes, ReportError, Scorecard, scorecard};

use crate::common::small::{self, Repository, codes};

const FIGURES: &str = r#"
[[paper]]
source = "vFlood Fig. 1a"
cell = { cc = "reno" }
values = { goodput_mbit = 52, timeouts = 0 }
[[paper]]
source = "vFlood Fig. 1a"
cell = { cc = "cubic" }
values = { goodput_mbit = 80 }
"#;
const RATIO: &str = r#"
[[paper]]
source = "vFlood Fig. 2"
ratios = [{ metric = "goodput_mbit", of = { cc = "cubic" }, to = { cc = "reno" }, value = 5 }]
[[paper]]
source = "CERA abstract"
orders = [{ metric = "timeouts", cells = [{ cc = "cubic" }, { cc = "reno" }] }]
"#;
const ROWS: &str = r#"
pages = [
    { name = "vflood", title = "vFlood | holds", intro = "What it is.", papers = ["vFlood"] },
    { name = "cera", title = "CERA", intro = "Shares.", papers = ["CERA"] },
]
own = [{ page = "cera", shows = "it works", results = ["sim-figures"], caveat = "Seen *once*." }]

[[figures]]
cite = "vFlood Fig. 1"
shows = "figures"
scenarios = ["sim/figures", "figures"]

[[figures]]
cite = "vFlood Fig. 2"
shows = "a ratio | with a bar"
caveat = "The bar is not the paper's."
scenarios = ["sim/ratio"]

[[figures]]
cite = "CERA Fig. 9"
shows = "a picture"

[[claims]]
cite = "CERA abstract"
shows = "fewer timeouts"
scenarios = ["sim/ratio", "ratio"]
"#;

fn repository() -> Repository {
    let repository =
        Repository::new(&[("sim/figures", FIGURES), ("figures", FIGURES), ("sim/ratio", RATIO), ("ratio", RATIO)]);
    fs::write(repository.pages().join("sim-figures.md"), "").unwrap();
    fs::write(repository.pages().join("rows.toml"), ROWS).unwrap();
    repository
}

fn card(repository: &Repository, codes: &Codes) -> Result<String, ReportError> {
    let (rows, pages, scenarios) = (repository.pages().join("rows.toml"), repository.pages(), repository.scenarios());
    let results = [PathBuf::from("not there"), repository.data()];
    let parts = Scorecard { rows: &rows, scenarios: &scenarios, results: &results, pages: &pages, codes };
    scorecard(&parts).map(|made| {
        let pages = made.mechanisms.into_iter().map(|(name, text)| format!("\n---- {name}\n{text}"));
        std::iter::once(made.card).chain(pages).collect()
    })
}

/// The line of a row.
fn row(card: &str, cite: &str) -> String {
    let begin = format!("| **{cite}**");
    card.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("{cite}: {card}")).to_owned()
}

#[test]
fn every_kind_of_row() {
    let repository = repository();
    repository.run("sim/figures", &[("goodput_mbit", [50.0, 70.0]), ("timeouts", [0.2, 3.0])]);
    repository.run("figures", &[("goodput_mbit", [5.0, 7.0]), ("timeouts", [9.0, 9.0])]);
    repository.run("sim/ratio", &[("goodput_mbit", [10.0, 20.0]), ("timeouts", [5.0, 4.0])]);
    repository.run("ratio", &[("goodput_mbit", [10.0, 50.0]), ("timeouts", [4.0, 5.0])]);
    insta::assert_snapshot!(card(&repository, &codes()).unwrap());
}

#[test]
fn what_was_not_run_is_not_measured() {
    let card = card(&repository(), &codes()).unwrap();
    for cite in ["vFlood Fig. 1", "vFlood Fig. 2", "CERA Fig. 9", "CERA abstract"] {
        assert!(row(&card, cite).ends_with("| **not measured** |"), "{card}");
    }
    assert!(card.contains("| figures and tables | 0 | 0 | 0 | 0 | 3 | 3 |"), "{card}");
}

#[test]
fn a_ratio_to_nothing_is_no_ratio() {
    let ratio = RATIO.replace("goodput_mbit\", of", "timeouts\", of");
    let repository = repository();
    repository.write("sim/ratio", &small::scenario("sim/ratio", &ratio));
    repository.run("sim/ratio", &[("timeouts", [0.0, 4.0])]);
    let card = card(&repository, &codes()).unwrap();
    assert!(row(&card, "vFlood Fig. 2").contains("1 not run | "), "{card}");
    assert!(row(&card, "vFlood Fig. 2").ends_with("| **not measured** |"), "{card}");
}

/// A median of the other runs would be one of those that went well.
#[test]
fn a_figure_that_a_run_lacks_does_not_come_out() {
    let card_of = |label: &str, metric: &str| {
        let repository = repository();
        let runs = [("goodput_mbit", [10.0, 50.0]), ("timeouts", [5.0, 4.0])];
        repository.run_all_but("sim/ratio", &runs, label, metric);
        repository.run("ratio", &runs);
        card(&repository, &codes()).unwrap()
    };
    let whole = card_of("", "");
    assert!(row(&whole, "vFlood Fig. 2").ends_with("| **comes out** |"), "{whole}");
    for label in ["reno", "cubic"] {
        let card = card_of(label, "goodput_mbit");
        assert!(row(&card, "vFlood Fig. 2").contains("directions 1 of 1, 1 not in all runs | "), "{card}");
        assert!(row(&card, "vFlood Fig. 2").ends_with("| **in part** |"), "{card}");
        assert!(card.contains("| 5\\.00\u{d7} (2 of 3 runs) | holds |"), "{card}");
    }
    let order = card_of("cubic", "timeouts");
    assert!(row(&order, "CERA abstract").ends_with("| **in part** |"), "{order}");
    assert!(order.contains("cubic 4 (2 of 3 runs) \\> reno 5"), "{order}");
}

/// Reno has half of the paper's goodput and three timeouts too many; Cubic is the experiment.
#[test]
fn what_holds_with_one_thing_changed_is_explained() {
    let stated = |with: &str| {
        format!(
            "[[paper]]\nsource = \"vFlood Fig. 1\"\ncell = {{ cc = \"reno\" }}\n\
             values = {{ goodput_mbit = 100, timeouts = 2 }}\n\
             [[paper]]\nsource = \"vFlood Fig. 1\"\ncell = {{ cc = \"cubic\" }}\n\
             with = \"another | *sender*\"\n{with}\n"
        )
    };
    let card_of = |with: &str, cubic: [(&str, [f64; 2]); 2]| {
        let repository = repository();
        repository.write("sim/figures", &small::scenario("sim/figures", &stated(with)));
        repository.run("sim/figures", &cubic);
        card(&repository, &codes()).unwrap()
    };
    let runs = [("goodput_mbit", [50.0, 110.0]), ("timeouts", [5.0, 3.0])];
    let whole = card_of("values = { goodput_mbit = 100, timeouts = 2 }", runs);
    assert!(row(&whole, "vFlood Fig. 1").ends_with("| **explained** |"), "{whole}");
    assert!(
        whole.contains("With another \\| \\*sender\\*: Simulator ([sim/figures](sim-figures.md)): sizes 2 of 2."),
        "{whole}"
    );
    // Timeouts stay without a cause; so does a figure that the experiment states and misses.
    let part = card_of("values = { goodput_mbit = 100 }", runs);
    assert!(row(&part, "vFlood Fig. 1").ends_with("| **not** |"), "{part}");
    let off = card_of("values = { goodput_mbit = 100, timeouts = 9 }", runs);
    assert!(row(&off, "vFlood Fig. 1").ends_with("| **not** |"), "{off}");
    // Nor is the experiment a cause if it is wrong elsewhere.
    let elsewhere = card_of(
        "values = { goodput_mbit = 100, timeouts = 2 }\n\
         [[paper]]\nsource = \"vFlood Fig. 2\"\nwith = \"another | *sender*\"\n\
         ratios = [{ metric = \"goodput_mbit\", of = { cc = \"cubic\" }, to = { cc = \"reno\" }, value = 9 }]",
        runs,
    );
    assert!(row(&elsewhere, "vFlood Fig. 1").ends_with("| **not** |"), "{elsewhere}");
    assert!(
        elsewhere.contains(" No cause: with it, sizes 2 of 3, directions 1 of 1 of all that is stated."),
        "{elsewhere}"
    );
    // Only the very figures of the paper count.
    let other = card_of("values = { goodput_mbit = 101, timeouts = 2 }", runs);
    assert!(row(&other, "vFlood Fig. 1").ends_with("| **not** |"), "{other}");
}

/// What the row does not have must hold in the experiment: of the same cells, and all in one.
#[test]
fn what_holds_of_other_cells_or_in_part_is_no_explanation() {
    const MISSED: &str = "[[paper]]\nsource = \"vFlood Fig. 1\"\ncell = { cc = \"reno\" }\n\
                          values = { goodput_mbit = 100, timeouts = 2 }\n";
    const HELD: &str =
        "[[paper]]\nsource = \"vFlood Fig. 1\"\ncell = { cc = \"cubic\" }\nvalues = { goodput_mbit = 110 }\n";
    const MENDED: &str = "[[paper]]\nsource = \"vFlood Fig. 1\"\ncell = { cc = \"cubic\" }\n\
                          with = \"another sender\"\nvalues = { goodput_mbit = 100, timeouts = 2 }\n";
    let verdict = |figures: &str, others: &str, lab: [(&str, &str); 2], of_lab: &[(&str, [f64; 2])]| {
        let repository = repository();
        let rows = ROWS.replace("[\"sim/figures\", \"figures\"]", "[\"sim/figures\", \"sim/others\", \"figures\"]");
        fs::write(repository.pages().join("rows.toml"), rows).unwrap();
        let runs = [("goodput_mbit", [50.0, 110.0]), ("timeouts", [5.0, 2.0])];
        for (name, paper) in [("sim/figures", figures), ("sim/others", others)] {
            repository.write(name, &small::scenario(name, paper));
            repository.run(name, &runs);
        }
        for (name, paper) in lab {
            repository.write(name, &small::scenario(name, paper));
        }
        repository.run("figures", of_lab);
        let card = card(&repository, &codes()).unwrap();
        row(&card, "vFlood Fig. 1").rsplit("**").nth(1).unwrap().to_owned()
    };
    let (unlike, unrun) = ([("figures", FIGURES), ("ratio", RATIO)], [("goodput_mbit", [5.0, 8.0])]);
    let of = |figures: &str, others: &str| verdict(figures, others, unlike, &unrun);
    let whole = format!("{MISSED}{MENDED}");
    assert_eq!(of(&whole, &whole), "explained");
    // The same figure twice, in two cells, of which the experiment has one.
    assert_eq!(of(&whole, MISSED), "not");
    // The same figure at another place of the paper.
    let elsewhere = MENDED.replace("Fig. 1", "Fig. 1b");
    assert_eq!(of(&format!("{MISSED}{elsewhere}"), HELD), "not");
    // As many cells of the same metric, in another order.
    let order = |with: &str, cells: &str| {
        format!(
            "[[paper]]\nsource = \"vFlood Fig. 1\"\n{with}orders = [{{ metric = \"timeouts\", cells = [{cells}] }}]\n"
        )
    };
    let missed = order("", "{ cc = \"reno\" }, { cc = \"cubic\" }");
    let other = order("with = \"another sender\"\n", "{ cc = \"cubic\" }, { cc = \"reno\" }");
    assert_eq!(of(&format!("{missed}{other}"), HELD), "not");
    // One half by one thing, the other by another.
    let by = |metric: &str, with: &str| {
        let one = MENDED.replace("goodput_mbit = 100, timeouts = 2", metric);
        one.replace("another sender", with)
    };
    let halves = format!("{MISSED}{}{}", by("goodput_mbit = 100", "this"), by("timeouts = 2", "that"));
    assert_eq!(of(&halves, HELD), "not");
    // What the lab lacks has to be in the experiment, too; not even that helps where the lab says "not".
    let ratio = |part: &str, with: &str| {
        format!(
            "[[paper]]\nsource = \"vFlood Fig. 1{part}\"\n{with}ratios = [{{ metric = \"goodput_mbit\", \
             of = {{ cc = \"cubic\" }}, to = {{ cc = \"reno\" }}, value = 2 }}]\n"
        )
    };
    let stated = ratio("", "");
    let lab = [("figures", stated.as_str()), ("ratio", RATIO)];
    let in_lab = |figures: &str, goodput| verdict(figures, &whole, lab, &[("goodput_mbit", goodput)]);
    let with_ratio = |part| format!("{whole}{}", ratio(part, "with = \"another sender\"\n"));
    assert_eq!(in_lab(&whole, [10.0, 21.0]), "explained");
    assert_eq!(in_lab(&whole, [10.0, 40.0]), "not");
    assert_eq!(in_lab(&with_ratio(""), [10.0, 40.0]), "explained");
    assert_eq!(in_lab(&with_ratio("b"), [10.0, 40.0]), "not");
    assert_eq!(in_lab(&with_ratio(""), [10.0, 5.0]), "not");
}

#[test]
fn old_runs_count_as_old() {
    let repository = repository();
    repository.run("sim/ratio", &[("goodput_mbit", [10.0, 50.0]), ("timeouts", [5.0, 4.0])]);
    let later = Codes { sim: "other".to_owned(), ..codes() };
    let card = card(&repository, &later).unwrap();
    assert!(card.contains("Simulator (`sim/ratio`; old: the code has changed since): "), "{card}");
    assert!(row(&card, "vFlood Fig. 2").ends_with("| **comes out**, old |"), "{card}");
    assert!(card.contains("| figures and tables | 1 (1 old) | 0 | 0 | 0 | 2 | 3 |"), "{card}");
}

#[test]
fn rows_and_scenarios_agree() {
    let why = |rows: &str| {
        let repository = repository();
        fs::write(repository.pages().join("rows.toml"), rows).unwrap();
        card(&repository, &codes()).unwrap_err().to_string()
    };
    assert!(why(&ROWS.replace("\"sim/ratio\"", "\"sim/other\"")).contains("no scenario is called `sim/other`"));
    let other = ROWS.replace("scenarios = [\"sim/ratio\"]", "scenarios = [\"figures\"]");
    assert!(why(&other).contains("`vFlood Fig. 2`: no `[[paper]]` table of `figures` is of it"));
    assert!(why(&ROWS.replace("vFlood Fig. 1", "vFlood Fig. 3")).contains("no `[[paper]]` table of `sim/figures`"));
    let none = ROWS.replace("cite = \"vFlood Fig. 2\"", "cite = \"CERA abstract\"");
    assert!(why(&none).contains("no row is of `vFlood Fig. 2`, a source in `ratio`"), "{}", why(&none));
    let experiment = ROWS.replace("scenarios = [\"sim/ratio\"]", "experiments = [\"sim/ratio\"]");
    let said = why(&experiment);
    assert!(
        said.contains("`vFlood Fig. 2`: no `[[paper]]` table that says `with` what of `sim/ratio` is of it"),
        "{said}"
    );
    assert!(why("figures = 3").contains("rows.toml"));
    let long = ROWS.replace("The bar is not the paper's.", &"long".repeat(201));
    assert!(why(&long).contains("`vFlood Fig. 2`: its caveat has 804 characters, at most 800 are allowed"));
    let nowhere = ROWS.replace("page = \"cera\"", "page = \"sera\"");
    assert!(why(&nowhere).contains("`it works`: no page is called `sera`"));
}

#[test]
fn the_repositorys_rows_and_scenarios_agree() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (rows, pages) = (top.join("docs/results/scorecard.toml"), top.join("docs/results"));
    let scenarios = top.join("scenarios");
    // Without runs, so that no result makes this fail.
    let parts = Scorecard { rows: &rows, scenarios: &scenarios, results: &[], pages: &pages, codes: &codes() };
    let card = scorecard(&parts).unwrap().card;
    let anchors = fs::read_to_string(top.join("docs/bibliography.md")).unwrap();
    for heading in card.lines().filter_map(|line| line.strip_prefix("## [")) {
        let (_, anchor) = heading.split_once('#').unwrap();
        let (anchor, _) = anchor.split_once(')').unwrap();
        assert!(anchors.contains(&format!("<a id=\"{anchor}\">")), "{heading}");
    }
    assert!(card.matches("| **not measured** |").count() >= 39, "{card}");
}
