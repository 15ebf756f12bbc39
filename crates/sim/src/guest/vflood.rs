//! vFlood's part of a guest's agent: it finds out how much of the time the guest's core is missing, and knows whether
//! the host holds what the guest floods.

use evenkeel_algo::rest::{LOOK_US, Looks, Word};
use evenkeel_scenario::slices::Turns;

use super::vcpu::VirtualCpu;
use crate::host::cores::{Cores, CoresSpec, Happens, Who};
use crate::host::scheduler::EntityId;
use crate::packet::GuestId;
use crate::time::{Duration, Instant};

/// Time between two heartbeats of either end, by default.
pub const HEARTBEAT: Duration = Duration::from_ms(200);
/// An end that has been silent for this long counts as gone: three heartbeats.
const SILENCE: Duration = Duration::from_ms(600);

/// The agent.
#[derive(Debug)]
pub struct Agent {
    looks: Looks,
    /// When it asked to be woken for its next look.
    look_at: Instant,
    /// A look, or a heartbeat, was due while the guest was off its core.
    pub(crate) is_late_look: bool,
    pub(crate) is_late_beat: bool,
    /// The guest may flood, as the host has told it.
    floods: bool,
    /// What the guest last said to the host, and when.
    said: (Option<u16>, bool),
    said_at: Instant,
}

impl Agent {
    /// An agent that ran before the simulation began, in an idle guest that had its core in these turns; `None`:
    /// always.
    pub fn new(turns: Option<Turns>) -> Self {
        Self::after(looks_before(turns))
    }

    fn after(looks: Looks) -> Self {
        Self {
            looks,
            look_at: Instant::START + Duration::from_us(LOOK_US),
            is_late_look: false,
            is_late_beat: false,
            floods: false,
            said: (looks.permille(), false),
            said_at: Instant::START,
        }
    }

    /// Like [`Self::new`], on a host whose scheduler decides; before the run all entities there only computed.
    pub fn among(host: &CoresSpec, guest: GuestId, seed: u64) -> Self {
        Self::after(looks_among(host, guest, seed))
    }

    /// When it looks next.
    pub const fn look_at(&self) -> Instant {
        self.look_at
    }

    /// It looks. Returns when it looks next.
    pub(crate) fn look(&mut self, now: Instant) -> Instant {
        self.is_late_look = false;
        self.look_at = Instant::START + Duration::from_us(self.looks.woke(self.look_at.us(), now.us()));
        self.look_at
    }

    /// It sends its heartbeat.
    pub(crate) fn say(&mut self, now: Instant) {
        self.is_late_beat = false;
        self.said = (self.looks.permille(), self.floods);
        self.said_at = now;
    }

    /// What the host last heard from it, if that is not too long ago; `attested`: what the host has told the guest.
    pub fn word(&self, now: Instant, attested: bool) -> Option<Word> {
        let (off_core_permille, floods) = self.said;
        let word = Word { off_core_permille, is_obedient: floods == attested };
        (now.since(self.said_at) < SILENCE).then_some(word)
    }

    /// The guest may flood.
    pub const fn floods(&self) -> bool {
        self.floods
    }

    /// It hears what the host attests. Returns whether the guest's leave to flood ends now.
    pub(crate) fn hear(&mut self, attested: bool) -> bool {
        std::mem::replace(&mut self.floods, attested) && !attested
    }
}

/// The looks of an idle guest that has its core in these turns.
fn looks_before(turns: Option<Turns>) -> Looks {
    let mut looks = Looks::default();
    let mut vcpu = VirtualCpu::new(turns);
    let mut due_us = LOOK_US;
    let (mut since, mut until) = (Instant::START, vcpu.start().unwrap_or(Instant::NEVER));
    while looks.permille().is_none() {
        let gives_up = vcpu.gives_up_after().filter(|_| vcpu.has_neighbour()).map(|idle| since + idle);
        let end = gives_up.map_or(until, |at| at.min(until));
        while Instant::START + Duration::from_us(due_us) < end && looks.permille().is_none() {
            due_us = looks.woke(due_us, due_us.max(since.us()));
        }
        let next = if end < until { vcpu.give_up(end) } else { vcpu.switch(end).unwrap_or(Instant::NEVER) };
        (since, until) = if vcpu.is_on() { (end, next) } else { (next, vcpu.switch(next).unwrap_or(Instant::NEVER)) };
    }
    looks
}

/// The looks of a guest on a host where all entities only compute.
fn looks_among(host: &CoresSpec, guest: GuestId, seed: u64) -> Looks {
    let mut looks = Looks::default();
    let mut cores = Cores::new(host, seed);
    let number = |guest| host.vcpus.iter().position(|(vcpu, _)| *vcpu == guest).unwrap_or(0);
    let own = number(guest);
    // Of each VM: whether it computes, and whether it has a core.
    let mut vcpus = vec![(false, false); host.vcpus.len()];
    let (mut due_us, mut is_due) = (LOOK_US, false);
    while looks.permille().is_none() {
        let look_at = Instant::START + Duration::from_us(due_us);
        let now = cores.next_event().unwrap_or(look_at).min(if is_due { Instant::NEVER } else { look_at });
        cores.advance(now);
        if now == look_at {
            is_due = true;
            cores.wake(EntityId(own as u32), now);
        }
        loop {
            while let Some(happens) = cores.happened.pop_front() {
                match happens {
                    Happens::Gets(Who::Vcpu(vcpu)) => vcpus[number(vcpu)].1 = true,
                    Happens::Loses(Who::Vcpu(vcpu)) => vcpus[number(vcpu)].1 = false,
                    Happens::Computes(vcpu, computes) => {
                        vcpus[number(vcpu)].0 = computes;
                        if computes {
                            cores.wake(EntityId(number(vcpu) as u32), now);
                        }
                    }
                    Happens::Gets(_) | Happens::Loses(_) => {}
                }
            }
            for (number, (computes, runs)) in vcpus.iter_mut().enumerate().filter(|(_, vcpu)| vcpu.1) {
                if is_due && number == own {
                    due_us = looks.woke(due_us, now.us());
                    is_due = false;
                }
                if !*computes {
                    *runs = false;
                    cores.block(EntityId(number as u32), now);
                }
            }
            if cores.happened.is_empty() {
                break;
            }
        }
    }
    looks
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::CoreSharing;

    use super::*;

    fn before(vms_per_core: u32, load: f64, idle_us: Option<u32>) -> i32 {
        let sharing = CoreSharing { vms_per_core, slice_jitter: 0.5, load, idle_us, ..CoreSharing::default() };
        let turns = (vms_per_core > 1).then_some(sharing);
        let looks = |seed| looks_before(turns.as_ref().map(|sharing| Turns::new(sharing, seed, 0)));
        (0..100).map(|seed| i32::from(looks(seed).permille().unwrap())).sum::<i32>() / 100
    }

    #[test]
    fn a_guest_knows_the_share_of_its_core_before_the_run() {
        assert_eq!(before(1, 1.0, None), 0);
        // Slices of 30 ms, of which 3 ms do not count. One that halts never has its whole slice.
        for (found, expected) in [
            (before(2, 1.0, None), 27_000 / 60),
            (before(3, 1.0, None), 57_000 / 90),
            (before(2, 0.3, None), 300 * 27 / 39),
            (before(2, 0.3, Some(20)), 300 * 27 / 30),
            (before(3, 1.0, Some(20)), 57_000 / 60),
        ] {
            assert!((found - expected).abs() < 40, "{found}, not {expected}");
        }
    }

    #[test]
    fn silence_is_no_word() {
        let mut agent = Agent::new(None);
        let at = |ms| Instant::START + Duration::from_ms(ms);
        agent.say(at(1000));
        assert_eq!(agent.word(at(1599), false), Some(Word { off_core_permille: Some(0), is_obedient: true }));
        assert_eq!(agent.word(at(1599), true), Some(Word { off_core_permille: Some(0), is_obedient: false }));
        assert_eq!(agent.word(at(1600), false), None);
    }
}
