//! What is done at the end of an epoch. Time and the queue's length come in as arguments; shares and channels are
//! given.

use evenkeel_algo::cera::{self, Controller, Far, LeastRtt, Loop, MAX_EPOCHS, Pace, Settings, Shown, Verdict, Vm};
use evenkeel_settings::Mode;

use super::setup::Member;
use crate::datapath::{Limit, Shares};

/// d before there was a handshake.
const UNKNOWN_RTT_US: u32 = 1000;
/// How long a limit holds after it was written. An agent that waits for its core may be late by this much; if it is
/// dead, limits end then. Without a limit a VM with vFlood hands over whatever its peers' windows allow, and that waits
/// on the host.
const HOLD_NS: u64 = 3_000_000_000;
/// The same in epochs, for epochs so long that this is more.
const HOLD_EPOCHS: u64 = 4;
/// The smoothed rate, which only users see, takes one part in this many from the newest epoch.
const RATE_WEIGHT: u64 = 64;

/// Who tells guests of their windows.
pub trait Clients {
    /// Sets the window of the VM behind this device; 0: it has none. Returns false if no client is there to heed it.
    fn tell(&self, ifindex: u32, epoch: u64, window_segments: u32) -> bool;
    /// Whether a client is there.
    fn is_there(&self, ifindex: u32) -> bool;
}

/// What an epoch has found at the uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// Epochs that have ended since the last time; more than one if the thread was late.
    pub ended: u64,
    /// What waits.
    pub queue_bytes: u64,
    /// C.
    pub bytes_per_s: u64,
}

/// A VM as the last epoch has left it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// w_k; 0: it has no limit.
    pub window_segments: u32,
    /// Active flows.
    pub flows: u32,
    /// What it sends, smoothed.
    pub bytes_per_s: u64,
    /// d_k.
    pub rtt_us: u32,
    /// How much longer than its RTT its loop is, because of pauses.
    pub pause_us: u32,
    /// It has a client.
    pub has_client: bool,
}

/// What the last epoch was, and sums over all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    /// Epochs at whose end the queue was looked at.
    pub epochs: u64,
    /// Epochs that ended without a look, because the thread was late.
    pub missed: u64,
    /// Epochs at whose end windows were cut.
    pub cuts: u64,
    /// What waits.
    pub queue_bytes: u64,
    /// Sum of that over all epochs.
    pub queue_bytes_sum: u64,
    /// W: CERA eq. 1, and what has been added to it since the last cut; 0: nobody is limited.
    pub window_segments: u32,
    /// d.
    pub rtt_us: u32,
}

#[derive(Debug)]
struct Seat {
    member: Member,
    share: Share,
    /// Its last limit, from which the place follows where the next remainder is dealt out.
    limit: Limit,
    pace: Pace,
    far: Far,
    /// What it may send by its weight, as of the last epoch; bytes per second.
    rate: u64,
}

/// The controller's state.
#[derive(Debug)]
pub struct Epochs {
    settings: Settings,
    /// d, if it is given.
    given_rtt_us: Option<u32>,
    controller: Controller,
    seats: Vec<Seat>,
    /// d of the last epoch.
    rtt_us: u32,
    /// The queue at the end of the last epoch.
    queue_us: u32,
    look: Look,
}

/// How long a link takes to send this many bytes.
fn duration_us(bytes: u64, bytes_per_s: u64) -> u32 {
    let us = bytes.saturating_mul(1_000_000) / bytes_per_s.max(1);
    us.min(u64::from(u32::MAX)) as u32
}

impl Epochs {
    /// A controller that has seen nothing.
    pub fn new(settings: Settings, given_rtt_us: Option<u32>) -> Self {
        Self {
            settings,
            given_rtt_us,
            controller: Controller::default(),
            seats: Vec::new(),
            rtt_us: UNKNOWN_RTT_US,
            queue_us: 0,
            look: Look::default(),
        }
    }

    /// Other settings hold from now on. What is measured stays.
    pub fn adopt(&mut self, settings: Settings, given_rtt_us: Option<u32>) {
        if self.settings != settings {
            self.controller = Controller::default();
        }
        self.settings = settings;
        self.given_rtt_us = given_rtt_us;
    }

    /// The settings that hold.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes these ports, and lets go of those that are no longer among them.
    pub fn seat(&mut self, members: &[Member], shares: &mut Shares, clients: &impl Clients) {
        let (old, mut seats) = (std::mem::take(&mut self.seats), Vec::with_capacity(members.len()));
        for member in members {
            let known =
                old.iter().find(|seat| seat.member.ifindex == member.ifindex && seat.member.slot == member.slot);
            seats.push(known.map_or_else(
                || Seat {
                    member: member.clone(),
                    share: Share::default(),
                    limit: Limit::default(),
                    pace: Pace::default(),
                    far: Far::default(),
                    rate: 0,
                },
                |seat| Seat { member: member.clone(), ..*seat },
            ));
        }
        for seat in &old {
            if !members.iter().any(|member| member.ifindex == seat.member.ifindex && member.mode == Mode::Enforce) {
                clients.tell(seat.member.ifindex, self.look.epochs, 0);
            }
            if !members.iter().any(|member| member.slot == seat.member.slot) {
                free(shares, seat.member.slot);
            }
        }
        self.seats = seats;
    }

    /// Nobody has a limit any more.
    pub fn release(&mut self, shares: &mut Shares, clients: &impl Clients) {
        for seat in &mut self.seats {
            free(shares, seat.member.slot);
            // Whether or not a client is there: one that is silent has the window that it was told.
            if seat.member.mode == Mode::Enforce {
                clients.tell(seat.member.ifindex, self.look.epochs, 0);
            }
            seat.limit = Limit::default();
            seat.share.window_segments = 0;
        }
        self.controller = Controller::default();
        self.look.window_segments = 0;
    }

    /// An epoch has ended, or several.
    pub fn end(&mut self, found: &Found, shares: &mut Shares, clients: &impl Clients) {
        let queue_us = duration_us(found.queue_bytes, found.bytes_per_s);
        let mut vms = self.collect(found, queue_us, shares);
        let settings = Settings {
            // Epochs that were missed have passed all the same.
            epoch_us: self.settings.epoch_us.saturating_mul(found.ended.clamp(1, u64::from(MAX_EPOCHS)) as u32),
            ..self.settings
        };
        let window = settings.window(found.bytes_per_s, self.rtt_us);
        let rtt_us = self.rtt_us.saturating_add(queue_us);
        let verdict = self.controller.epoch(&settings, found.queue_bytes, rtt_us, window);
        self.controller.divide(&settings, &mut vms, found.bytes_per_s);
        let is_limited = verdict != Verdict::Free;
        self.look.epochs += 1;
        self.look.missed += found.ended.saturating_sub(1);
        self.look.cuts += u64::from(verdict == Verdict::Cut);
        self.look.queue_bytes = found.queue_bytes;
        self.look.queue_bytes_sum += found.queue_bytes;
        self.look.rtt_us = self.rtt_us;
        self.look.window_segments = if is_limited { window.saturating_add(self.controller.extra()) } else { 0 };

        let hold_ns = HOLD_NS.max(u64::from(self.settings.epoch_us) * 1000 * HOLD_EPOCHS);
        let until_ns = found.now_ns.saturating_add(hold_ns);
        let cover_us = self.cover_us(found.bytes_per_s);
        for (seat, vm) in self.seats.iter_mut().zip(&vms) {
            let window = if is_limited { vm.window } else { 0 };
            let was_limited = seat.share.window_segments > 0;
            seat.share.window_segments = window;
            seat.share.flows = vm.flows;
            (seat.share.rtt_us, seat.share.pause_us, seat.rate) = (vm.rtt_us, seat.pace.pause_us(), vm.rate);
            // A port that only observes leaves its guest alone, as the datapath leaves its packets alone.
            seat.share.has_client = seat.member.mode == Mode::Enforce
                && if window > 0 || was_limited {
                    clients.tell(seat.member.ifindex, self.look.epochs, window)
                } else {
                    clients.is_there(seat.member.ifindex)
                };
            let next = if seat.limit.window_segments > 0 && self.controller.has_turned() {
                cera::next(seat.limit.window_segments, seat.limit.flows, seat.limit.next)
            } else {
                seat.limit.next
            };
            let of_loop = Loop { rtt_us: vm.rtt_us, loop_us: vm.loop_us, cover_us };
            seat.limit = Limit { window_segments: window, flows: vm.flows.max(1), next, of_loop, until_ns };
            if let Some(mut share) = shares.get(seat.member.slot) {
                share.limit(seat.limit);
            }
        }
    }

    /// How long the link takes to send T_l.
    fn cover_us(&self, bytes_per_s: u64) -> u32 {
        duration_us(u64::from(self.settings.low_segments) * u64::from(self.settings.segment_bytes), bytes_per_s)
    }

    /// What VMs have sent, and d.
    fn collect(&mut self, found: &Found, queue_us: u32, shares: &mut Shares) -> Vec<Vm> {
        let longest_us = self.queue_us.max(queue_us);
        self.queue_us = queue_us;
        let now_us = found.now_ns / 1000;
        let epoch_us = self.settings.epoch_us;
        let elapsed_us = found.ended.max(1).saturating_mul(epoch_us.into()).min(u64::from(u32::MAX)) as u32;
        let cover_us = self.cover_us(found.bytes_per_s);
        let mut least_us: Option<u32> = None;
        let mut vms = Vec::with_capacity(self.seats.len());
        for seat in &mut self.seats {
            let Some(mut share) = shares.get(seat.member.slot) else {
                vms.push(Vm::default());
                continue;
            };
            // Turned once, however many epochs have ended: the latest one counts what was sent in all of them.
            share.queue(longest_us);
            let far_us = seat.far.epoch(now_us, share.take_far());
            let silent_us = seat.share.pause_us.max(far_us);
            let loop_us = self.rtt_us.saturating_add(queue_us).saturating_add(silent_us);
            let stride = self.settings.stride(loop_us);
            let traffic = share.turn(self.settings.epochs, stride);
            let handshake = share.take_handshake();
            let (rtt, own_rtt) = share.rtts();
            if let Some(us) = handshake {
                rtt.sample(now_us, us);
                own_rtt.sample(now_us, LeastRtt::without(us, longest_us));
            }
            least_us = least_us.into_iter().chain(rtt.get()).min();
            let own_us = own_rtt.get().filter(|_| self.given_rtt_us.is_none()).unwrap_or(0);
            let span_us = u64::from(self.settings.epochs) * u64::from(epoch_us);
            let missed_us = found.ended.saturating_sub(1).saturating_mul(u64::from(epoch_us));
            let rate = traffic.bytes.saturating_mul(1_000_000) / span_us.saturating_add(missed_us).max(1);
            let smooth = seat.share.bytes_per_s;
            seat.share.bytes_per_s = smooth - smooth / RATE_WEIGHT + rate / RATE_WEIGHT;
            let reserve_bytes = seat.pace.turn(&Shown {
                now_us,
                sent_bytes: traffic.newest_bytes,
                rate: seat.rate,
                epoch_us: elapsed_us,
                seen: share.take_pauses(),
                rtt_us: LeastRtt::of_vm(self.rtt_us, own_us).saturating_add(far_us),
                cover_us,
                queue_us,
            });
            vms.push(Vm {
                sent_bytes: traffic.bytes,
                weight: seat.member.weight,
                rtt_us: own_us,
                reserve_bytes,
                usual_bytes: seat.pace.usual_bytes(),
                flows: traffic.flows,
                is_fresh: traffic.is_fresh,
                ..Vm::default()
            });
        }
        self.rtt_us = self.given_rtt_us.or(least_us).unwrap_or(UNKNOWN_RTT_US);
        for vm in &mut vms {
            vm.rtt_us = LeastRtt::of_vm(self.rtt_us, vm.rtt_us);
        }
        vms
    }

    /// What the last epoch was.
    pub fn look(&self) -> Look {
        self.look
    }

    /// The VMs, by device.
    pub fn shares(&self) -> impl Iterator<Item = (u32, Share)> + '_ {
        self.seats.iter().map(|seat| (seat.member.ifindex, seat.share))
    }
}

fn free(shares: &mut Shares, slot: u32) {
    if let Some(mut share) = shares.get(slot) {
        share.limit(Limit::default());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    use super::*;

    const SEGMENT: u32 = 1514;
    const RATE: u64 = 12_500_000;

    /// Guests with a client, and what they were told last.
    #[derive(Default)]
    struct Told(RefCell<BTreeMap<u32, Option<u32>>>, Cell<bool>);

    impl Told {
        fn are_silent(&self) -> bool {
            self.1.get()
        }
    }

    impl Clients for Told {
        fn tell(&self, ifindex: u32, _: u64, window_segments: u32) -> bool {
            let is_known = self.0.borrow_mut().get_mut(&ifindex).map(|told| *told = Some(window_segments)).is_some();
            is_known && !self.are_silent()
        }

        fn is_there(&self, ifindex: u32) -> bool {
            self.0.borrow().contains_key(&ifindex) && !self.are_silent()
        }
    }

    fn member(number: u32, weight: u32, mode: Mode) -> Member {
        Member { ifindex: 10 + number, slot: number, mode, weight }
    }

    struct Bed {
        epochs: Epochs,
        shares: Shares,
        clients: Told,
        stamps: [u32; 4],
        now_ns: u64,
    }

    impl Bed {
        fn new(members: &[Member]) -> Self {
            let settings = Settings { segment_bytes: SEGMENT, ..cera::DEFAULTS };
            let (mut epochs, mut shares, clients) = (Epochs::new(settings, None), Shares::anonymous(), Told::default());
            epochs.seat(members, &mut shares, &clients);
            Self { epochs, shares, clients, stamps: [0; 4], now_ns: 1_000_000_000 }
        }

        /// An epoch in which each of `senders` sends a segment, and `waiting` segments wait at its end.
        fn epoch(&mut self, senders: &[u32], waiting: u64) {
            for slot in senders {
                let stamp = &mut self.stamps[*slot as usize];
                self.shares.get(*slot).unwrap().count(stamp, SEGMENT);
            }
            self.now_ns += 1_000_000;
            let queue_bytes = waiting * u64::from(SEGMENT);
            let found = Found { now_ns: self.now_ns, ended: 1, queue_bytes, bytes_per_s: RATE };
            self.epochs.end(&found, &mut self.shares, &self.clients);
        }

        fn limit(&mut self, slot: u32) -> Limit {
            self.shares.get(slot).unwrap().limit_set()
        }

        fn window(&mut self, slot: u32) -> u32 {
            self.limit(slot).window_segments
        }
    }

    #[test]
    fn a_long_queue_is_cut_to_a_window_divided_by_weight() {
        let mut bed =
            Bed::new(&[member(0, 1, Mode::Enforce), member(1, 2, Mode::Enforce), member(2, 1, Mode::Enforce)]);
        for _ in 0..20 {
            bed.epoch(&[0, 1], 60);
        }
        assert_eq!((bed.window(0), bed.epochs.look().cuts), (0, 0), "no more than T_u");
        bed.epoch(&[0, 1], 61);
        // d is 1000 us until there is a handshake: 8 segments, and T_l.
        assert_eq!(bed.epochs.look().window_segments, 38);
        // A third and two thirds, and half a segment for each flow; 39 in all.
        assert_eq!((bed.window(0), bed.window(1)), (13, 26));
        let limit = bed.limit(0);
        assert_eq!((limit.flows, limit.until_ns), (1, bed.now_ns + HOLD_NS));
        assert!(bed.window(2) > 0, "a silent one may wake up");
        // d is known: the window is T_l alone.
        bed.shares.get(1).unwrap().handshake(100);
        bed.epoch(&[0, 1], 61);
        assert_eq!((bed.epochs.look().rtt_us, bed.epochs.look().window_segments), (100, 30));
        assert_eq!((bed.window(0), bed.window(1)), (10, 21));
        // Windows grow from there, and in the end limit nothing any more.
        let mut largest = 0;
        for _ in 0..1000 {
            bed.epoch(&[0, 1], 0);
            largest = largest.max(bed.window(1));
        }
        assert!(largest > 40, "{largest}");
        assert_eq!((bed.window(0), bed.window(1), bed.epochs.look().window_segments), (0, 0, 0));
        assert_eq!(bed.epochs.look().cuts, 2);
    }

    #[test]
    fn a_vm_that_waits_for_its_core_has_what_lasts_so_long_besides() {
        let mut bed = Bed::new(&[member(0, 1, Mode::Enforce), member(1, 1, Mode::Enforce)]);
        for round in 0..40 {
            if round % 10 == 0 {
                bed.shares.get(0).unwrap().pause(8_000);
            }
            bed.epoch(&[0, 1], 61);
        }
        let (of, other) = (bed.window(0), bed.window(1));
        // Half of the link's rate, or a bit more before rates were known, in 8 ms: 33 segments and more.
        assert!(of > other + 30 && of < other + 70, "{of} and {other}");
        let shares: Vec<_> = bed.epochs.shares().map(|(_, share)| share.pause_us).collect();
        assert_eq!(shares, [8_000, 0]);
        // Other ports come; what is known of these stays.
        let members: Vec<_> = (0..3).map(|number| member(number, 1, Mode::Enforce)).collect();
        bed.epochs.seat(&members, &mut bed.shares, &bed.clients);
        bed.epoch(&[0, 1], 61);
        assert!(bed.window(0) > bed.window(1) + 30);
    }

    #[test]
    fn ports_know_what_windows_are_for_and_far_flows_are_not_forgotten() {
        let mut bed = Bed::new(&[member(0, 1, Mode::Enforce), member(1, 1, Mode::Enforce)]);
        bed.shares.get(0).unwrap().handshake(100);
        for _ in 0..20 {
            bed.epoch(&[0, 1], 61);
        }
        // 30 segments last 3.6 ms at 100 Mbit/s; each VM may have one more.
        let Loop { rtt_us, loop_us, cover_us } = bed.limit(0).of_loop;
        assert_eq!((rtt_us, cover_us), (100, 3_633));
        assert!((3_600..4_200).contains(&loop_us), "{loop_us}");
        // A flow is active for two round trips, of the farthest one.
        let after = |bed: &mut Bed, epochs: u32| {
            (0..epochs).for_each(|_| bed.epoch(&[1], 61));
            bed.epochs.seats[0].share.flows
        };
        assert_eq!(after(&mut bed, 40), 0);
        bed.shares.get(0).unwrap().far(40_000);
        bed.epoch(&[0, 1], 61);
        assert_eq!(after(&mut bed, 80), 1);
        assert_eq!(after(&mut bed, 80), 0);
    }

    #[test]
    fn a_vm_with_a_client_is_told_and_limited_as_any_other() {
        let mut bed = Bed::new(&[member(0, 1, Mode::Enforce), member(1, 1, Mode::Observe)]);
        bed.clients.0.borrow_mut().extend([(10, None), (11, None)]);
        bed.epoch(&[0, 1], 100);
        let told = bed.clients.0.borrow().clone();
        assert!(
            bed.window(0) > 0 && told[&10] == Some(bed.window(0)),
            "what a client makes of it is the VM's word alone"
        );
        assert_eq!(told[&11], None, "where CERA only observes nobody is told");
        assert!(bed.window(1) > 0, "what the datapath counts, and does not write");
        // The remainder goes round: a segment.
        assert!(bed.window(0).abs_diff(bed.window(1)) <= 1, "the same with a client and without");
        bed.clients.0.borrow_mut().remove(&10);
        bed.epoch(&[0, 1], 100);
        assert!(bed.window(0) > 0 && bed.window(0).abs_diff(bed.window(1)) <= 1);
        bed.clients.0.borrow_mut().insert(10, None);
        bed.epoch(&[0, 1], 100);
        bed.epochs.release(&mut bed.shares, &bed.clients);
        assert_eq!(bed.clients.0.borrow()[&10], Some(0));
        assert_eq!(bed.limit(1), Limit::default());
    }

    #[test]
    fn a_limit_that_ends_is_told_to_those_who_are_silent_too() {
        let mut bed = Bed::new(&[member(0, 1, Mode::Enforce), member(1, 1, Mode::Observe)]);
        bed.clients.0.borrow_mut().extend([(10, None), (11, None)]);
        bed.epoch(&[0, 1], 100);
        let window = bed.window(0);
        assert_eq!(bed.clients.0.borrow()[&10], Some(window));
        bed.clients.1.set(true);
        bed.epoch(&[0, 1], 100);
        bed.epochs.release(&mut bed.shares, &bed.clients);
        let told = bed.clients.0.borrow().clone();
        assert_eq!((told[&10], told[&11]), (Some(0), None), "they hear it when they are back");
    }

    #[test]
    fn a_port_that_goes_has_no_limit_and_the_others_stay() {
        let members = [member(0, 1, Mode::Enforce), member(1, 1, Mode::Enforce)];
        let mut bed = Bed::new(&members);
        bed.epoch(&[0, 1], 100);
        assert!(bed.window(0) > 0);
        bed.epochs.seat(&members[1..], &mut bed.shares, &bed.clients);
        assert_eq!(bed.limit(0), Limit::default());
        assert!(bed.window(1) > 0);
        assert_eq!(bed.epochs.shares().map(|(ifindex, _)| ifindex).collect::<Vec<_>>(), [11]);
    }

    #[test]
    fn epochs_that_were_missed_are_counted_and_have_gone_by() {
        let mut bed = Bed::new(&[member(0, 1, Mode::Enforce)]);
        bed.epoch(&[0], 0);
        let found = Found { now_ns: bed.now_ns, ended: 5, queue_bytes: 0, bytes_per_s: RATE };
        bed.epochs.end(&found, &mut bed.shares, &bed.clients);
        assert_eq!((bed.epochs.look().epochs, bed.epochs.look().missed), (2, 4));
        // What was sent while nobody looked is not forgotten: M is 4, and this is the second look.
        assert_eq!(bed.shares.get(0).unwrap().turn(4, 1).bytes, u64::from(SEGMENT));
    }
}
