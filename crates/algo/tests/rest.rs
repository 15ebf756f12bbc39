//! When vFlood rests: what a guest finds out about its core, and what its host does about it.

use evenkeel_algo::rest::{HANDSHAKE_US, LATE_US, LOOK_US, LOOKS, Looks, QUIET_US, Rest, Word};
use proptest::prelude::*;

const MS: u64 = 1000;
const ACTS: u16 = 150;

fn says(permille: u16) -> Option<Word> {
    Some(Word { off_core_permille: Some(permille), is_obedient: true })
}

/// A guest says the same for `us`, and is heard every 50 ms.
fn run(rest: &mut Rest, now_us: &mut u64, us: u64, guest: Option<Word>) {
    let end = *now_us + us;
    while *now_us < end {
        *rest = rest.heard(guest, ACTS, *now_us);
        *now_us += 50 * MS;
    }
}

#[test]
fn it_rests_where_the_first_word_is_of_a_core_and_acts_where_one_is_missing() {
    let (mut rest, mut now_us) = (Rest::default(), 7);
    run(&mut rest, &mut now_us, 60_000 * MS, None);
    run(&mut rest, &mut now_us, 60_000 * MS, Some(Word { off_core_permille: None, is_obedient: true }));
    assert!(rest.attests() && !rest.passes_over(), "who does not say gets what there is");
    run(&mut rest, &mut now_us, 100 * MS, says(0));
    assert!(!rest.attests() && rest.passes_over());
    run(&mut rest, &mut now_us, 50 * MS, says(300));
    assert!(!rest.attests() && !rest.passes_over(), "held, and not yet attested");
    run(&mut rest, &mut now_us, HANDSHAKE_US + 50 * MS, says(300));
    assert!(rest.attests());
}

#[test]
fn a_vm_that_it_acted_for_must_have_its_core_for_a_while() {
    let (mut rest, mut now_us) = (Rest::default(), 7);
    run(&mut rest, &mut now_us, 1000 * MS, says(300));
    for _ in 0..3 {
        run(&mut rest, &mut now_us, QUIET_US - 100 * MS, says(0));
        assert!(rest.attests());
        run(&mut rest, &mut now_us, 50 * MS, says(ACTS));
    }
    run(&mut rest, &mut now_us, QUIET_US, says(0));
    // A share between the two limits changes nothing.
    run(&mut rest, &mut now_us, 200 * MS, says(120));
    assert!(rest.passes_over());
    run(&mut rest, &mut now_us, 60_000 * MS, says(120));
    assert!(rest.passes_over());
}

#[test]
fn a_guest_that_goes_is_waited_for_by_one_that_acts() {
    let (mut rest, mut now_us) = (Rest::default(), 7);
    run(&mut rest, &mut now_us, 1000 * MS, says(0));
    assert!(rest.passes_over());
    run(&mut rest, &mut now_us, 5000 * MS, None);
    assert!(rest.is_unheard());
}

#[test]
fn it_always_acts_where_no_share_of_time_is_too_little() {
    let (mut rest, mut now_us) = (Rest::default(), 7);
    for _ in 0..100 {
        rest = rest.heard(says(0), 0, now_us);
        assert!(rest.attests() && !rest.passes_over());
        now_us += QUIET_US;
    }
}

proptest! {
    /// A guest that has the host's word, or has not said since that it is plain, is never passed over; and none that
    /// was passed over has a word within the time of a handshake.
    #[test]
    fn what_floods_is_held(
        words in proptest::collection::vec(
            (proptest::option::of(proptest::option::of(0u16..300)), any::<bool>(), 1u64..3000),
            1..200,
        ),
    ) {
        let (mut rest, mut now_us) = (Rest::default(), 7);
        let (mut may_flood, mut passed_over) = (false, None);
        for (permille, is_obedient, ms) in words {
            // The guest can answer what it is told now only the next time.
            let has_said = is_obedient && !rest.attests();
            let word = permille.map(|off_core_permille| Word { off_core_permille, is_obedient: has_said });
            rest = rest.heard(word, ACTS, now_us);
            may_flood = rest.attests() || (may_flood && !has_said && permille.is_some());
            prop_assert!(!may_flood || !rest.passes_over());
            prop_assert!(!rest.attests() || passed_over.is_none_or(|then| now_us - then >= HANDSHAKE_US));
            now_us += ms * MS;
            if rest.passes_over() {
                passed_over = Some(now_us);
            }
        }
    }
}

/// A guest that has its core for `on_us` and is without it for `off_us`, again and again.
fn share(on_us: u64, off_us: u64) -> u16 {
    let start_us = 123_456_789;
    let wakes = |due_us: u64| {
        let since_us = (due_us - start_us) % (on_us + off_us);
        if since_us < on_us { due_us } else { due_us + (on_us + off_us - since_us) }
    };
    let mut looks = Looks::default();
    let mut due_us = start_us + LOOK_US;
    while due_us < start_us + LOOK_US * 10 * u64::from(LOOKS) {
        due_us = looks.woke(due_us, wakes(due_us));
    }
    looks.permille().unwrap()
}

#[test]
fn looks_find_the_share_of_time_without_a_core() {
    assert_eq!(share(MS, 0), 0);
    for (on, off) in [(31, 31), (30, 60), (170, 34), (37, 300), (1000, 7)] {
        let expected = (off - 3) * 1000 / (on + off);
        let found = i64::from(share(on as u64 * MS, off as u64 * MS));
        assert!((found - expected).abs() <= 100, "{on} ms with and {off} without: {found}, not {expected}");
    }
}

#[test]
fn looks_that_were_slept_through_count() {
    let due_us = 123_456_789;
    let mut looks = Looks::default();
    for _ in 0..LOOKS {
        looks.woke(due_us, due_us);
    }
    let next_us = looks.woke(due_us, due_us + 3 * LOOK_US + LOOK_US / 2);
    assert_eq!((next_us, looks.permille()), (due_us + 4 * LOOK_US, Some(4 * 1000 / LOOKS as u16)));
    let next_us = looks.woke(next_us, next_us + LATE_US);
    assert_eq!((next_us, looks.permille()), (due_us + 5 * LOOK_US, Some(4 * 1000 / LOOKS as u16)));
    // A machine that stood still for a month.
    let next_us = looks.woke(next_us, next_us + 60_000_000 * LOOK_US + LATE_US);
    assert_eq!((next_us, looks.permille()), (due_us + 60_000_006 * LOOK_US, Some(1000)));
}

#[test]
fn nothing_is_said_of_too_few_looks() {
    let (mut looks, start_us) = (Looks::default(), 7);
    for _ in 1..LOOKS {
        looks.woke(start_us, start_us);
        assert_eq!(looks.permille(), None);
    }
    looks.woke(start_us, start_us);
    assert_eq!(looks.permille(), Some(0));
}
