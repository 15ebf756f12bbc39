use std::time::Duration;

use evenkeel_scenario::random::Random;

use super::bootstrap::Draws;
use super::*;

const PAIRS: u64 = 14;

/// Traffic as it could be: slots differ from each other, exchanges of a slot have something in common, sizes are mixed.
/// With the mechanism, exchanges in which the VM sends take `factor` times as long.
fn samples(seed: u64, factor: f64, per_slot: usize) -> Samples {
    let mut random = Random::new(seed, 77);
    let mut samples = Samples::default();
    let mean = Duration::from_secs(2);
    let mut now_ns = 1_000_000_000;
    for slot in slots(mean * 2 * PAIRS as u32, mean, seed) {
        samples.begin(&slot, now_ns);
        let common = 0.6 + 0.8 * random.unit();
        let (from, until) = slot.intake();
        for _ in 0..per_slot {
            let begin_ns = now_ns + (from + (until - from).mul_f64(random.unit())).as_nanos() as u64;
            let large = random.below(3) == 0;
            let (bytes, usual) = if large { (300_000, 0.02) } else { (5_000, 0.002) };
            let factor = if slot.enforces { factor } else { 1.0 };
            let seconds = usual * common * factor * (0.3 + random.exponential(1.0));
            samples.add(&Exchange {
                begin_ns,
                end_ns: begin_ns + (seconds * 1e9) as u64,
                bytes_from_vm: bytes,
                handshake_us: 200 + random.below(100) as u32,
                again: random.below(2) as u32,
                ..Exchange::default()
            });
        }
        now_ns += slot.length.as_nanos() as u64;
        samples.end(now_ns);
    }
    samples
}

/// The verdict alone: the other figures take most of the time.
fn verdict(seed: u64, factor: f64) -> Verdict {
    let samples = samples(seed, factor, 40);
    let pairs = samples.pairs();
    let primary = judge::primary(&judge::kinds(&pairs), &[Direction::Sends], &Draws::new(pairs.len(), seed));
    judge::verdict(primary.as_ref())
}

fn share(seeds: u64, is: impl Fn(u64) -> bool) -> f64 {
    (0..seeds).filter(|seed| is(*seed)).count() as f64 / seeds as f64
}

#[test]
fn where_nothing_differs_it_says_so() {
    let share = share(200, |seed| verdict(seed, 1.0) == Verdict::NoDifference);
    assert!(share >= 0.95, "{share}");
}

#[test]
fn a_gain_and_a_harm_are_found() {
    let gains = share(50, |seed| verdict(seed, 0.6) == Verdict::Gain);
    let harms = share(50, |seed| verdict(seed, 1.7) == Verdict::Harm);
    assert!(gains >= 0.95 && harms >= 0.95, "{gains} {harms}");
}

#[test]
fn what_is_small_is_no_difference_however_certain() {
    let judgement = judge(&samples(3, 0.97, 1000), &[Direction::Sends], 3);
    let primary = judgement.primary.unwrap();
    assert!((0.8..1.1).contains(&primary.value), "{primary:?}");
    assert!(verdict_of(0.97, 0.96, 0.98) == Verdict::NoDifference && verdict_of(0.9, 0.85, 0.95) == Verdict::Gain);
    assert!(verdict_of(1.04, 1.01, 1.07) == Verdict::NoDifference && verdict_of(1.2, 1.1, 1.3) == Verdict::Harm);
    assert_eq!(verdict_of(0.7, 0.4, 1.1), Verdict::NoDifference);
}

fn verdict_of(value: f64, low: f64, high: f64) -> Verdict {
    judge::verdict(Some(&Estimate { value, low, high }))
}

#[test]
fn what_is_of_the_other_direction_or_too_little_makes_no_verdict() {
    let judgement = judge(&samples(1, 0.5, 40), &[Direction::Receives], 1);
    assert_eq!((judgement.verdict, judgement.primary), (Verdict::TooLittle, None));
    assert_eq!(judgement.rows.len(), 2);
    assert_eq!(judge(&samples(1, 0.5, 2), &[Direction::Sends], 1).verdict, Verdict::TooLittle);
    let nothing = judge(&Samples::default(), &Direction::ALL, 1);
    assert_eq!((nothing.verdict, nothing.pairs, nothing.rows.len()), (Verdict::TooLittle, 0, 0));
}

#[test]
fn figures_are_those_of_what_was_timed() {
    let judgement = judge(&samples(1, 2.0, 400), &[Direction::Sends], 1);
    for row in &judgement.rows {
        for compared in [row.geometric, row.median, row.mean, row.p99] {
            let compared = compared.unwrap();
            let ratio = compared.change.unwrap();
            assert!((1.6..2.5).contains(&ratio.value) && ratio.low < 2.0 && ratio.high > 2.0, "{row:?}");
        }
        // The median of 0.3 + an exponential of mean 1.
        let usual = if row.class == "to 10 KB" { 0.002 } else { 0.02 };
        let median = row.median.unwrap().observe / usual;
        assert!((0.8..1.2).contains(&median), "{median}");
    }
    let again = judgement.again.unwrap();
    assert!((400.0..600.0).contains(&again.observe) && again.change.unwrap().low < 0.0, "{again:?}");
    assert!((judgement.handshakes.unwrap().observe - 250e-6).abs() < 5e-6);
    assert_eq!(judgement, judge(&samples(1, 2.0, 400), &[Direction::Sends], 1), "the same seed, the same figures");
}

fn trial(judgement: Judgement) -> Trial {
    Trial {
        mechanism: "vflood".to_owned(),
        ports: vec!["vnet<1>".to_owned()],
        started: "today".to_owned(),
        seconds: 56.0,
        slot_seconds: 2.0,
        seed: 1,
        command: "evenkeel trial vnet1".to_owned(),
        version: "0.1.0".to_owned(),
        notes: vec!["a note & more".to_owned()],
        judgement,
    }
}

#[test]
fn reports_say_the_verdict_and_nothing_that_a_browser_would_act_on() {
    for (factor, per_slot, words) in [(1.0, 40, "makes no difference"), (0.5, 40, "helps"), (2.0, 40, "harms")] {
        let trial = trial(judge(&samples(1, factor, per_slot), &[Direction::Sends], 1));
        let (page, text) = (trial.html(), trial.text());
        assert!(page.contains(words) && text.starts_with("vflood ") && text.contains(words), "{text}");
        assert!(page.contains("vnet&lt;1&gt;") && page.contains("a note &amp; more") && !page.contains("vnet<1>"));
        assert!(!page.contains("<script") && !page.contains("://"));
        assert!(text.lines().all(|line| line.chars().count() <= 170), "{text}");
        let json = serde_json::to_value(&trial).unwrap();
        assert!(json["judgement"]["primary"]["value"].is_f64(), "{json}");
    }
    let trial = trial(judge(&Samples::default(), &Direction::ALL, 1));
    assert!(trial.html().contains("Too little traffic") && trial.text().contains("Too little traffic"));
}
