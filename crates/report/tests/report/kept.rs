//! What is kept of results, and which pages are current.

use std::fs;

use evenkeel_report::{Codes, MOST_KEPT_BYTES, Page, check_pages, keep, load, mark_page, write_page};
use evenkeel_scenario::RunRecord;
use evenkeel_scenario::result::{FlowRecord, Series};

use crate::common::small::{Repository, codes, is_kept, scenario};

const NAME: &str = "sim/small";

#[test]
fn a_small_set_is_kept_whole() {
    let repository = Repository::new(&[(NAME, "")]);
    let results = repository.run(NAME, &[("goodput_mbit", [50.0, 60.0])]);
    let place = repository.0.path().join("kept");
    let kept = keep(&results, &place).unwrap().unwrap();
    assert!(kept.left_out.is_empty() && kept.bytes < MOST_KEPT_BYTES, "{kept:?}");
    let again = load(&place).unwrap();
    assert_eq!((again.set, again.records), (results.set, results.records));
}

#[test]
fn what_makes_a_set_too_large_is_left_out() {
    let repository = Repository::new(&[(NAME, "")]);
    let mut results = repository.run(NAME, &[("goodput_mbit", [50.0, 60.0])]);
    let points = (0..20_000).map(|t| (t, t as f64)).collect();
    results.records[0].series.push(Series { name: "rto_ms".to_owned(), subject: "a-0".to_owned(), points });
    let place = repository.0.path().join("kept");
    let kept = keep(&results, &place).unwrap().unwrap();
    assert_eq!(kept.left_out, ["series and packets"]);
    let again = load(&place).unwrap();
    assert_eq!(again.set.remarks, ["Kept without series and packets; the command makes them again."]);
    assert!(again.records[0].series.is_empty() && again.records[0].flows == results.records[0].flows);
    let flow = results.records[0].flows[0].clone();
    results.records[0].flows = (0..20_000).map(|start_us| FlowRecord { start_us, ..flow.clone() }).collect();
    let kept = keep(&results, &place).unwrap().unwrap();
    assert_eq!(kept.left_out, ["series and packets", "flows"]);
    let small = results.records[1].clone();
    results.records[0].counters = (0..20_000).map(|number| (format!("vm-{number}"), Default::default())).collect();
    assert_eq!(keep(&results, &place).unwrap().unwrap().left_out.len(), 3);
    let more = |repetition| RunRecord {
        repetition,
        metrics: [("goodput_mbit".to_owned(), f64::from(repetition))].into(),
        ..small.clone()
    };
    results.records.extend((3..12_000).map(more));
    assert_eq!(keep(&results, &place).unwrap(), None);
    assert!(!is_kept(&place) && !place.exists());
}

fn page(repository: &Repository, codes: &Codes) -> Page {
    let pages = check_pages(&repository.pages(), &repository.scenarios(), codes).unwrap();
    assert_eq!(pages.len(), 1, "{pages:?}");
    pages.into_iter().next().unwrap()
}

#[test]
fn a_page_is_old_when_code_or_scenario_have_changed() {
    let repository = Repository::new(&[(NAME, "")]);
    let results = repository.run(NAME, &[("goodput_mbit", [50.0, 60.0])]);
    let file = repository.pages().join("sim-small.md");
    write_page(&results, &file).unwrap();
    fs::write(repository.pages().join("README.md"), "# Results\n\nOf `sim/small`.\n").unwrap();
    let old = |codes: &Codes| page(&repository, codes).old;
    assert!(old(&codes()).is_empty());
    assert!(old(&Codes { lab: "other".to_owned(), ..codes() }).is_empty());
    assert_eq!(old(&Codes { sim: "other".to_owned(), ..codes() }), ["the code has changed since"]);
    // A change that affects no run makes no page old.
    repository.write(NAME, &scenario(NAME, "[[paper]]\nsource = \"s\"\nvalues = { timeouts = 3 }").replace("Two", "2"));
    assert!(old(&codes()).is_empty());
    repository.write(NAME, &scenario(NAME, "").replace("rate_mbit = 100", "rate_mbit = 10"));
    assert_eq!(old(&codes()), ["the scenario has changed since"]);
    repository.write(NAME, "schema = 2\n");
    assert_eq!(old(&codes()), ["its scenario is no longer valid"]);
    fs::remove_file(repository.scenarios().join("sim/small.toml")).unwrap();
    assert_eq!(old(&codes()), ["its scenario is no longer there"]);
    repository.write(NAME, &scenario(NAME, ""));
    let text = fs::read_to_string(&file).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("<!-- made")).collect();
    fs::write(&file, without.join("\n")).unwrap();
    assert_eq!(old(&codes()), ["made before pages recorded their code"]);
}

#[test]
fn a_change_that_no_figure_depends_on_makes_no_page_old() {
    let repository = Repository::new(&[(NAME, "")]);
    let (was, is) = ("0000000000000051", "0000000000000052");
    let made = Codes { sim: was.to_owned(), ..codes() };
    let mut results = repository.run(NAME, &[("goodput_mbit", [50.0, 60.0])]);
    results.set.provenance.as_mut().unwrap().program.code = was.to_owned();
    write_page(&results, &repository.pages().join("sim-small.md")).unwrap();
    let later = Codes { sim: is.to_owned(), ..codes() };
    let said = |codes: &Codes| (page(&repository, codes).old.len(), page(&repository, codes).since);
    assert_eq!((said(&made), said(&later)), ((0, vec![]), (1, vec![])));
    let change = format!("[[change]]\nwas = \"{was}\"\nis = \"{is}\"\nwhy = \"only reloads\"\n");
    fs::write(repository.pages().join("changes.toml"), change).unwrap();
    assert_eq!((said(&made), said(&later)), ((0, vec![]), (0, vec!["only reloads".to_owned()])));
    // Where figures of this scenario do depend on it, it is said which.
    let depends = format!("[[change]]\nwas = \"{was}\"\nis = \"{is}\"\nwhy = \"drops\"\nold = [\"sim/small\"]\n");
    fs::write(repository.pages().join("changes.toml"), depends + "figures = \"counts of_drops\"\n").unwrap();
    let old = page(&repository, &later);
    assert_eq!(old.old, ["the code has changed since, and with it counts of_drops"]);
    assert!(mark_page(&old).unwrap());
    let text = fs::read_to_string(&old.file).unwrap();
    assert!(
        text.contains("**Old**: the code has changed since, and with it counts of\\_drops. <!-- old -->"),
        "{text}"
    );
    // The code that is here now is none of an earlier time.
    assert_eq!(said(&Codes { sim: "0000000000000053".to_owned(), ..codes() }).0, 1);
}

#[test]
fn an_old_page_says_so_until_it_is_current() {
    let repository = Repository::new(&[(NAME, "")]);
    let results = repository.run(NAME, &[("goodput_mbit", [50.0, 60.0])]);
    let file = repository.pages().join("sim-small.md");
    write_page(&results, &file).unwrap();
    let text = || fs::read_to_string(&file).unwrap();
    let current = text();
    assert!(!mark_page(&page(&repository, &codes())).unwrap());
    let later = Codes { sim: "other".to_owned(), ..codes() };
    assert!(mark_page(&page(&repository, &later)).unwrap());
    let word = "\n\n**Old**: the code has changed since. <!-- old -->\n\nScenario `sim/small`";
    assert!(text().contains(word), "{}", text());
    assert!(!mark_page(&page(&repository, &later)).unwrap());
    assert!(mark_page(&page(&repository, &codes())).unwrap());
    assert_eq!(text(), current);
}
