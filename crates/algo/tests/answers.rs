//! ProBoSCIS for answers, by what must hold of it.

use evenkeel_algo::proboscis::{Answer, Train, Verdict, WindowSettings};
use evenkeel_algo::window::{self, By};
use proptest::prelude::*;

const MSS: u32 = 1448;

fn settings() -> WindowSettings {
    WindowSettings { k_percent: 50, k2_permille: 500, icwnd_segments: 10, b3_us: 1000 }
}

fn train(probes: u8, marked: u8) -> Train {
    let mut train = Train::default();
    for index in 0..probes {
        train.count(0, index, 10, index < marked);
    }
    train
}

#[test]
fn a_synack_has_probes_only_where_they_were_asked_for() {
    let mut train = train(7, 0);
    assert_eq!(train.answer_probes(10), 0, "the opener's host would have no use for them");
    train.ask_back();
    assert_eq!(train.answer_probes(10), 7, "no more than came");
    assert_eq!(train.answer_probes(5), 5);
    let mut silent = Train::default();
    silent.ask_back();
    assert_eq!(silent.answer_probes(10), 0, "none came, so nobody has asked");
}

#[test]
fn without_probes_an_answer_is_left_alone() {
    let (verdict, mut answer) = Answer::new(&Train::default(), &settings(), MSS, 1000);
    assert_eq!((verdict, answer.limit(1000, 7)), (Verdict::NoProbes, None));
}

#[test]
fn an_answers_window_follows_its_probes_until_it_is_acknowledged() {
    let (verdict, mut answer) = Answer::new(&train(10, 4), &settings(), MSS, 1000);
    assert_eq!((verdict, answer.limit(1000, 0)), (Verdict::Scaled, Some(6 * MSS)));
    assert_eq!(answer.limit(1000, 0), Some(6 * MSS), "the request has the same edge as the ACK before it");
    assert_eq!(answer.limit(1001, 0), None);
    assert_eq!(answer.limit(1000, 0), None, "an old ACK takes back nothing");
    let (verdict, mut answer) = Answer::new(&train(10, 6), &settings(), MSS, 1000);
    assert_eq!((verdict, answer.limit(1000, 0)), (Verdict::OneMss, Some(MSS)));
    let (verdict, mut answer) = Answer::new(&train(4, 0), &settings(), MSS, 1000);
    assert_eq!((verdict, answer.limit(1000, 0)), (Verdict::OneMss, Some(MSS)), "too few came");
}

proptest! {
    /// Whatever the opener acknowledges and offers, the edge that the other end is told never moves back.
    #[test]
    fn no_edge_is_taken_back(
        seen in 0u8..=10, marked in 0u8..=10, start: u32, scale in 0u8..=14,
        acks in prop::collection::vec(0u32..5000, 1..30), offered in 1u16..,
    ) {
        let (_, mut answer) = Answer::new(&train(seen, marked.min(seen)), &settings(), MSS, start);
        let (mut ack, mut edge) = (0, 0u64);
        for step in acks {
            // Most ACKs of a request say nothing new.
            ack += if step < 4000 { 0 } else { step };
            let limit = answer.limit(start.wrapping_add(ack), scale);
            let offers = window::Offers { proboscis_bytes: limit, ..Default::default() };
            let (field, by) = window::arbitrate(offers, offered, scale, MSS);
            let next = u64::from(ack) + (u64::from(field) << scale);
            prop_assert!(next >= edge, "{next} {edge}");
            prop_assert!(ack == 0 || by == By::Receiver);
            if by == By::Proboscis {
                let least = train(seen, marked.min(seen)).first_window(&settings(), MSS).1;
                prop_assert!(u64::from(field) << scale >= u64::from(least), "no segment is cut short");
            }
            edge = next;
        }
    }
}
