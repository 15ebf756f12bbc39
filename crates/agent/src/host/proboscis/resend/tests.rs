//! The timers against any order of events.

use proptest::prelude::*;

use super::*;

/// A host whose one port has these settings; SYNs are unanswered and trains incomplete until said otherwise.
#[derive(Default)]
struct Host {
    settings: Option<Settings>,
    answered: bool,
    complete: bool,
}

impl Facts for Host {
    fn settings(&self, _: u32) -> Option<Settings> {
        self.settings
    }

    fn trains_sent(&self, _: &ek_flow_key, _: u32) -> Option<u8> {
        (!self.answered).then_some(1)
    }

    fn is_train_complete(&self, _: &ek_flow_key, _: u32) -> bool {
        self.complete
    }
}

const SETTINGS: Settings = Settings { probes: 10, b1_us: 4_000, b2_us: 20_000, b3_us: 1_000, max_time_us: 60_000 };

fn host() -> Host {
    Host { settings: Some(SETTINGS), ..Host::default() }
}

fn event(type_: u32, iss: u32) -> Box<ek_event> {
    Box::new(ek_event { type_, iss, ..Default::default() })
}

/// All that is sent for a SYN until nothing is due any more: when, how many probes, whether with the SYN.
fn all(resend: &mut Resend, host: &Host) -> Vec<(u64, u32, bool)> {
    let mut sent = Vec::new();
    while let Some(due_us) = resend.due_us() {
        for send in resend.expire(due_us, host) {
            if let Send::Syn { probes, with_syn, .. } = send {
                sent.push((due_us, probes, with_syn));
            }
        }
    }
    sent
}

#[test]
fn probes_come_again_after_b1_and_the_syn_after_b2_up_to_max_time() {
    let mut resend = Resend::default();
    assert_eq!(resend.event(event(intf::EK_EVENT_SYN_PROBED, 1), 0, &host()), None);
    let sent = all(&mut resend, &host());
    assert_eq!(
        sent[..5],
        [(4_000, 10, false), (8_000, 20, false), (12_000, 30, false), (16_000, 40, false), (20_000, 50, true)]
    );
    assert!(sent.iter().all(|(at, probes, _)| *at <= 60_000 && *probes <= intf::PROBOSCIS_MAX_PROBES));
    assert_eq!(sent.iter().filter(|(_, _, syn)| *syn).count(), 3);
    let counts = resend.counts();
    assert_eq!((counts.syns_resent, counts.syns_given_up, counts.probes_resent), (3, 1, sent.len() as u64));
    assert_eq!(resend.waiting(), (0, 0));
}

/// A peer that was never heard of may be far, and without evenkeel.
#[test]
fn a_stranger_is_sent_the_syn_once_more() {
    let mut resend = Resend::default();
    resend.event(event(intf::EK_EVENT_SYN_STRANGER, 1), 0, &host());
    assert_eq!(all(&mut resend, &host()), [(20_000, 10, true)]);
    assert_eq!((resend.counts().syns_resent, resend.counts().syns_given_up), (1, 1));
}

#[test]
fn an_answered_syn_is_left_alone() {
    let mut resend = Resend::default();
    resend.event(event(intf::EK_EVENT_SYN_PROBED, 1), 0, &host());
    assert_eq!(all(&mut resend, &Host { answered: true, ..host() }), []);
    assert_eq!((resend.waiting(), resend.counts()), ((0, 0), Counts::default()));
}

#[test]
fn a_port_that_is_gone_or_only_observed_sends_nothing() {
    let mut resend = Resend::default();
    resend.event(event(intf::EK_EVENT_SYN_PROBED, 1), 0, &Host::default());
    assert_eq!(resend.due_us(), None);
    resend.event(event(intf::EK_EVENT_SYN_PROBED, 1), 0, &host());
    assert_eq!(all(&mut resend, &Host::default()), []);
}

#[test]
fn a_held_syn_ack_goes_when_its_probes_are_in_or_after_b3() {
    let held = event(intf::EK_EVENT_SYNACK_HELD, 1);
    let mut resend = Resend::default();
    assert_eq!(resend.event(held.clone(), 100, &host()), None);
    assert_eq!(resend.expire(100 + HELD_POLL_US, &host()), []);
    let late = resend.expire(1_100, &host());
    assert_eq!(late, [Send::SynAck { event: held.clone() }]);
    assert_eq!((resend.counts().synacks_late, resend.due_us()), (1, None));

    resend.event(held.clone(), 5_000, &host());
    let in_time = resend.expire(5_000 + HELD_POLL_US, &Host { complete: true, ..host() });
    assert_eq!(in_time, [Send::SynAck { event: held.clone() }]);
    assert_eq!(resend.counts().synacks_in_time, 1);

    // With nothing left to wait for, it goes at once.
    assert_eq!(resend.event(held.clone(), 9_000, &Host::default()), Some(Send::SynAck { event: held.clone() }));
    resend.event(held.clone(), 9_000, &host());
    assert_eq!(resend.drain(), [Send::SynAck { event: held }]);
    assert_eq!(resend.due_us(), None);
}

#[test]
fn a_flood_of_syns_is_bounded_and_delays_no_syn_ack() {
    let mut resend = Resend::default();
    for iss in 0..MAX_WAITING as u32 + 5 {
        resend.event(event(intf::EK_EVENT_SYN_PROBED, iss), 0, &host());
    }
    assert_eq!((resend.waiting().0, resend.counts().overflows), (MAX_WAITING as u64, 5));
    let held = event(intf::EK_EVENT_SYNACK_HELD, 7_000_000);
    assert_eq!(resend.event(held.clone(), 0, &host()), Some(Send::SynAck { event: held }));
}

#[derive(Debug, Clone)]
enum Step {
    Event { is_syn: bool, iss: u32 },
    Wait { us: u64 },
    Answered(bool),
    Complete(bool),
    Settings(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (any::<bool>(), 0u32..8).prop_map(|(is_syn, iss)| Step::Event { is_syn, iss }),
        (0u64..30_000).prop_map(|us| Step::Wait { us }),
        any::<bool>().prop_map(Step::Answered),
        any::<bool>().prop_map(Step::Complete),
        any::<bool>().prop_map(Step::Settings),
    ]
}

proptest! {
    /// Every held SYN-ACK goes out once, no later than b3 after it came or at the next look; no SYN is cared for longer
    /// than MAX_TIME; after a look nothing that is due is in the past.
    #[test]
    fn nothing_is_kept_and_nothing_is_sent_twice(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut resend, mut host, mut now_us) = (Resend::default(), host(), 0);
        // SYN-ACKs that a later one of the same connection has replaced are the guest's own retransmission.
        let (mut held, mut released) = (std::collections::HashMap::new(), 0u64);
        for step in steps {
            let mut sends = Vec::new();
            match step {
                Step::Event { is_syn, iss } => {
                    let syn = if iss % 2 == 0 { intf::EK_EVENT_SYN_PROBED } else { intf::EK_EVENT_SYN_STRANGER };
                    let type_ = if is_syn { syn } else { intf::EK_EVENT_SYNACK_HELD };
                    if is_syn { held.remove(&iss); } else { held.insert(iss, now_us); }
                    sends.extend(resend.event(event(type_, iss), now_us, &host));
                }
                Step::Wait { us } => {
                    let until_us = now_us + us;
                    while let Some(due_us) = resend.due_us().filter(|due_us| *due_us <= until_us) {
                        now_us = now_us.max(due_us);
                        sends.extend(resend.expire(now_us, &host));
                        prop_assert!(resend.due_us().is_none_or(|next| next > now_us));
                    }
                    now_us = until_us;
                }
                Step::Answered(answered) => host.answered = answered,
                Step::Complete(complete) => host.complete = complete,
                Step::Settings(there) => host.settings = there.then_some(SETTINGS),
            }
            for send in sends {
                match send {
                    Send::SynAck { event } => {
                        prop_assert!(held.remove(&event.iss).is_some(), "sent twice, or never held");
                        released += 1;
                    }
                    Send::Syn { probes, with_syn, .. } => {
                        prop_assert!(probes > 0 || with_syn);
                        prop_assert!(probes <= intf::PROBOSCIS_MAX_PROBES);
                    }
                }
            }
            prop_assert_eq!(resend.waiting().1, held.len() as u64);
            prop_assert!(held.values().all(|since_us| now_us <= since_us + u64::from(SETTINGS.b3_us)));
        }
        let drained = resend.drain();
        prop_assert_eq!(drained.len(), held.len());
        let counts = resend.counts();
        prop_assert_eq!(counts.synacks_in_time + counts.synacks_late, released + drained.len() as u64);
    }
}

#[test]
fn what_waits_for_a_port_that_is_gone_goes_nowhere() {
    let (mut resend, host) = (Resend::default(), host());
    for (ifindex, type_) in
        [(7, intf::EK_EVENT_SYN_PROBED), (7, intf::EK_EVENT_SYNACK_HELD), (8, intf::EK_EVENT_SYN_PROBED)]
    {
        let mut event = event(type_, type_);
        event.flow.ifindex = ifindex;
        assert_eq!(resend.event(event, 0, &host), None);
    }
    resend.gone(7);
    assert_eq!(resend.waiting(), (1, 0));
    let mut sent = Vec::new();
    while let Some(due_us) = resend.due_us() {
        sent.extend(resend.expire(due_us, &host));
    }
    let of_the_other = |send: &Send| matches!(send, Send::Syn { event, .. } if event.flow.ifindex == 8);
    assert!(!sent.is_empty() && sent.iter().all(of_the_other), "{sent:?}");
}
