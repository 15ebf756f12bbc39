//! When vFlood rests: while a VM has its core, its own TCP does as well, and to hold its packets only costs.
//!
//! The guest's agent says for how much of the time its core is missing; [`Rest`] is what follows.

use std::time::{Duration, Instant};

/// For how long a VM for which vFlood acted must have had its core: connections that are there flood no more from then
/// on.
const QUIET: Duration = Duration::from_secs(10);
/// A handshake that was passed over has ended by then. Its connection is not held, so it must not begin under a new
/// word of the host.
const HANDSHAKE: Duration = Duration::from_secs(1);

/// What vFlood does on a port just now.
///
/// The guest must not flood what nobody holds. So the host's word is taken back first, and new connections are passed
/// over once the guest has said that it is plain; and the guest has a word again only when all connections that are
/// about to begin are held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rest {
    /// It acts; no guest has said yet how it fares.
    #[default]
    Unheard,
    /// It acts.
    Acts,
    /// It acts, though the VM has its core since then.
    Quiet(Instant),
    /// The guest has no word any more, and has not yet said that it is plain.
    Ending,
    /// New connections are passed over.
    Rests,
    /// They are held again since then; the guest has no word yet.
    Waking(Instant),
}

/// What a guest's agent says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// For how much of the last seconds its core was missing; nothing where it does not know.
    pub off_core_permille: Option<u16>,
    /// Whether it does what it was told last.
    pub is_obedient: bool,
}

impl Rest {
    /// What the guest says now; nothing if no agent is there. From `acts_permille` of the time without a core on vFlood
    /// acts, and below two thirds of it it need not.
    #[must_use]
    pub fn heard(self, guest: Option<Word>, acts_permille: u16, now: Instant) -> Self {
        let permille = guest.and_then(|guest| guest.off_core_permille);
        let has_core = permille.is_some_and(|permille| permille < acts_permille / 3 * 2);
        let waits = permille.is_some_and(|permille| permille >= acts_permille);
        match self {
            Self::Rests if waits || guest.is_none() => Self::Waking(now),
            Self::Rests => Self::Rests,
            Self::Waking(since) if now.saturating_duration_since(since) < HANDSHAKE => self,
            _ if guest.is_none() => Self::Unheard,
            // No connection floods yet that would lose by it.
            Self::Unheard | Self::Waking(_) if has_core => Self::Ending,
            Self::Unheard | Self::Waking(_) if permille.is_none() => Self::Unheard,
            Self::Unheard | Self::Waking(_) => Self::Acts,
            Self::Acts if has_core => Self::Quiet(now),
            Self::Quiet(_) if waits => Self::Acts,
            Self::Quiet(since) if now.saturating_duration_since(since) >= QUIET => Self::Ending,
            Self::Ending if waits => Self::Acts,
            Self::Ending if guest.is_some_and(|guest| guest.is_obedient) => Self::Rests,
            Self::Acts | Self::Quiet(_) | Self::Ending => self,
        }
    }

    /// May the guest flood?
    pub fn attests(self) -> bool {
        matches!(self, Self::Unheard | Self::Acts | Self::Quiet(_))
    }

    /// Are new connections passed over?
    pub fn passes_over(self) -> bool {
        self == Self::Rests
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const ACTS: u16 = 150;

    fn says(permille: u16) -> Option<Word> {
        Some(Word { off_core_permille: Some(permille), is_obedient: true })
    }

    /// A guest that says the same for so long, heard every 50 ms.
    fn run(rest: &mut Rest, now: &mut Instant, time: Duration, guest: Option<Word>) {
        let end = *now + time;
        while *now < end {
            *rest = rest.heard(guest, ACTS, *now);
            *now += 50 * MS;
        }
    }

    #[test]
    fn it_rests_where_the_first_word_is_of_a_core_and_acts_where_one_is_missing() {
        let (mut rest, mut now) = (Rest::default(), Instant::now());
        run(&mut rest, &mut now, 60_000 * MS, None);
        run(&mut rest, &mut now, 60_000 * MS, Some(Word { off_core_permille: None, is_obedient: true }));
        assert!(rest.attests() && !rest.passes_over(), "who does not say gets what there is");
        run(&mut rest, &mut now, 100 * MS, says(0));
        assert!(!rest.attests() && rest.passes_over());
        run(&mut rest, &mut now, 50 * MS, says(300));
        assert!(!rest.attests() && !rest.passes_over(), "held, and not yet attested");
        run(&mut rest, &mut now, HANDSHAKE + 50 * MS, says(300));
        assert!(rest.attests());
    }

    #[test]
    fn a_vm_that_it_acted_for_must_have_its_core_for_a_while() {
        let (mut rest, mut now) = (Rest::default(), Instant::now());
        run(&mut rest, &mut now, 1000 * MS, says(300));
        for _ in 0..3 {
            run(&mut rest, &mut now, QUIET - 100 * MS, says(0));
            assert!(rest.attests());
            run(&mut rest, &mut now, 50 * MS, says(ACTS));
        }
        run(&mut rest, &mut now, QUIET, says(0));
        // What is between the two limits changes nothing.
        run(&mut rest, &mut now, 200 * MS, says(120));
        assert!(rest.passes_over());
        run(&mut rest, &mut now, 60_000 * MS, says(120));
        assert!(rest.passes_over());
    }

    #[test]
    fn a_guest_that_goes_is_waited_for_by_one_that_acts() {
        let (mut rest, mut now) = (Rest::default(), Instant::now());
        run(&mut rest, &mut now, 1000 * MS, says(0));
        assert!(rest.passes_over());
        run(&mut rest, &mut now, 5000 * MS, None);
        assert_eq!(rest, Rest::Unheard);
    }

    proptest! {
        /// A guest that has the host's word, or has not said since that it is plain, is never passed over; and none has
        /// a word within the time of a handshake that was passed over.
        #[test]
        fn what_floods_is_held(
            words in proptest::collection::vec(
                (proptest::option::of(proptest::option::of(0u16..300)), any::<bool>(), 1u32..3000),
                1..200,
            ),
        ) {
            let (mut rest, mut now) = (Rest::default(), Instant::now());
            let (mut may_flood, mut passed_over) = (false, None);
            for (permille, is_obedient, ms) in words {
                // Of what it is told now it can only say so the next time.
                let has_said = is_obedient && !rest.attests();
                let word = permille.map(|off_core_permille| Word { off_core_permille, is_obedient: has_said });
                rest = rest.heard(word, ACTS, now);
                may_flood = rest.attests() || (may_flood && !has_said && permille.is_some());
                prop_assert!(!may_flood || !rest.passes_over());
                prop_assert!(!rest.attests() || passed_over.is_none_or(|then| now - then >= HANDSHAKE));
                now += ms * MS;
                if rest.passes_over() {
                    passed_over = Some(now);
                }
            }
        }
    }
}
