//! Both ends together: what holds whatever a connection does, and what a host's channels do with a real socket.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use evenkeel_settings::address::HostAddress;
use proptest::prelude::*;

use super::wire::tests::frame;
use super::wire::{Capabilities, Heartbeat, Hello, Message, Role, Window};
use super::*;

mod sharing;

const MS: Duration = Duration::from_millis(1);
const HEARTBEAT_MS: u16 = 100;
/// No end counts as there for longer than this after its last word.
const SILENCE: Duration = Duration::from_millis(300);

fn capable() -> Capabilities {
    Capabilities::VFLOOD.with(Capabilities::CERA)
}

/// Both ends with a connection between them.
struct Pair {
    now: Instant,
    host: HostEnd,
    guest: GuestEnd,
    /// What is on its way.
    to_guest: Vec<u8>,
    to_host: Vec<u8>,
    /// Whether the guest takes itself to be attested, and until when.
    attested: Option<(Instant, u32)>,
    limit: u32,
    effects: Vec<Effect>,
}

impl Pair {
    fn new() -> Self {
        let now = Instant::now();
        let mut pair = Self {
            now,
            host: HostEnd::new(HEARTBEAT_MS, 7, now),
            guest: GuestEnd::new(HEARTBEAT_MS, capable(), 9, now),
            to_guest: Vec::new(),
            to_host: Vec::new(),
            attested: None,
            limit: 0,
            effects: Vec::new(),
        };
        pair.host.connected(now);
        pair.guest.connected(now);
        pair
    }

    fn obey(&mut self, effects: Vec<Effect>) {
        for effect in &effects {
            match effect {
                Effect::Attested { until, flood_segments, .. } => self.attested = Some((*until, *flood_segments)),
                Effect::Retracted => self.attested = None,
                Effect::Share(window) => self.limit = window.segments,
                Effect::Released => self.limit = 0,
                Effect::Up(_) | Effect::Down(_) | Effect::Rest => {}
            }
        }
        if effects.iter().any(|effect| matches!(effect, Effect::Attested { .. } | Effect::Retracted)) {
            self.guest.report_soon(self.now);
        }
        self.effects.extend(effects);
    }

    /// Both say what they have to say; what is on its way arrives if the connection is there.
    fn turn(&mut self, to_guest: bool, to_host: bool) {
        self.host.expire(self.now);
        let effects = self.guest.expire(self.now);
        self.obey(effects);
        self.host.outgoing(self.now, &mut self.to_guest);
        self.guest.outgoing(self.now, &mut self.to_host);
        if to_guest {
            let bytes = std::mem::take(&mut self.to_guest);
            let effects = self.guest.received(&bytes, self.now);
            self.obey(effects);
        }
        if to_host {
            let bytes = std::mem::take(&mut self.to_host);
            self.host.received(&bytes, self.now);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.turn(true, true);
            self.now += 10 * MS;
        }
    }

    fn floods(&self) -> bool {
        self.attested.is_some_and(|(until, _)| self.now < until)
    }
}

#[test]
fn two_ends_meet_within_a_few_messages() {
    let mut pair = Pair::new();
    pair.host.attest(Some(512), pair.now);
    for _ in 0..4 {
        pair.turn(true, true);
    }
    assert!(pair.floods() && pair.host.is_obeyed(), "{:?}", pair.host.guest());
    assert_eq!(pair.attested.unwrap().1, 512);
    assert!(pair.host.window(3, 40));
    pair.turn(true, true);
    assert_eq!(pair.limit, 40);
    pair.run(2 * SILENCE);
    assert!(pair.floods());
    assert_eq!(pair.host.guest().unwrap().epoch, 3);
    assert_eq!(pair.effects.iter().filter(|effect| matches!(effect, Effect::Up(_))).count(), 1);
    pair.host.attest(None, pair.now);
    pair.host.window(4, 0);
    pair.run(50 * MS);
    assert!(!pair.floods() && pair.host.is_obeyed());
    assert_eq!(pair.limit, 0);
}

/// A guest wakes up once for both: its heartbeats go out when the host's come, whatever phase they begin in, and on
/// their own if none come.
#[test]
fn a_guests_heartbeats_answer_the_hosts() {
    for late_ms in [0, 20, 49, 51, 80, 99] {
        let mut pair = Pair::new();
        pair.run(SILENCE);
        pair.host = HostEnd::new(HEARTBEAT_MS, 8, pair.now);
        pair.now += late_ms * MS;
        pair.host.connected(pair.now);
        pair.run(SILENCE);
        let (mut said, end) = (0, pair.now + 3000 * MS);
        while pair.now < end {
            let (mut to_guest, mut to_host) = (Vec::new(), Vec::new());
            pair.host.outgoing(pair.now, &mut to_guest);
            pair.guest.received(&to_guest, pair.now);
            pair.guest.outgoing(pair.now, &mut to_host);
            pair.host.received(&to_host, pair.now);
            assert!(to_host.is_empty() || !to_guest.is_empty(), "woke up to speak");
            said += u32::from(!to_host.is_empty());
            pair.now += MS;
        }
        assert!((29..=31).contains(&said), "{said} heartbeats in 3 s");
        let silent = pair.now;
        while pair.guest.host().is_some() {
            pair.now += MS;
            pair.guest.expire(pair.now);
            let mut to_host = Vec::new();
            pair.guest.outgoing(pair.now, &mut to_host);
            said += u32::from(!to_host.is_empty());
        }
        assert!(pair.now - silent <= SILENCE && (31..=34).contains(&said), "{said} heartbeats");
    }
}

/// The token by which a guest knows what its host holds is made of the session.
#[test]
fn both_ends_have_one_session_and_silence_is_no_other() {
    let mut pair = Pair::new();
    let host = |pair: &Pair| {
        let mut hosts = pair.effects.iter().filter_map(|effect| match effect {
            Effect::Attested { host, .. } => Some(*host),
            _ => None,
        });
        hosts.next_back().expect("it has attested")
    };
    pair.host.attest(Some(512), pair.now);
    pair.run(SILENCE);
    assert_eq!(host(&pair), pair.host.session());
    // Nobody is heard for a while.
    let end = pair.now + 4 * SILENCE;
    while pair.now < end {
        pair.now += 10 * MS;
        let (now, _) = (pair.now, pair.guest.expire(pair.now));
        pair.host.expire(now);
    }
    pair.run(4 * SILENCE);
    assert!(pair.floods());
    assert_eq!(host(&pair), pair.host.session());
}

#[test]
fn goodbyes_end_it_at_once() {
    let mut pair = Pair::new();
    pair.host.attest(Some(512), pair.now);
    pair.host.window(1, 40);
    pair.run(SILENCE);
    assert!(pair.floods() && pair.limit == 40);
    pair.host.goodbye(&mut pair.to_guest);
    pair.turn(true, true);
    assert!(!pair.floods());
    assert_eq!(pair.limit, 0);
}

/// The channels' thread may go on while the one that keeps the datapath holding packets does not.
#[test]
fn what_nobody_vouches_for_any_more_is_taken_back() {
    let mut pair = Pair::new();
    pair.host.attest(Some(512), pair.now);
    for _ in 0..5 {
        pair.host.vouch(pair.now + SILENCE, pair.now);
        pair.run(SILENCE / 2);
        assert!(pair.floods() && pair.host.is_obeyed());
    }
    pair.run(SILENCE);
    assert!(!pair.floods() && pair.host.is_obeyed() && pair.host.guest().is_some());
    pair.host.vouch(pair.now + SILENCE, pair.now);
    pair.run(50 * MS);
    assert!(pair.floods(), "it is vouched for again");
}

/// A guest's agent that comes back finds what the host said while it was away, which is no longer true.
#[test]
fn what_waited_in_a_buffer_attests_nothing() {
    let mut pair = Pair::new();
    pair.host.attest(Some(512), pair.now);
    pair.host.window(1, 40);
    pair.run(SILENCE);
    // Nobody reads for a while: the host hears nothing, and its words pile up.
    let end = pair.now + 4 * SILENCE;
    while pair.now < end {
        pair.host.window(2, 50);
        pair.turn(false, false);
        pair.now += 10 * MS;
    }
    assert!(!pair.floods() && pair.limit == 0 && pair.host.guest().is_none());
    let (old, session) = (std::mem::take(&mut pair.to_guest), 11);
    pair.guest = GuestEnd::new(HEARTBEAT_MS, capable(), session, pair.now);
    pair.guest.connected(pair.now);
    let effects = pair.guest.received(&old, pair.now);
    assert_eq!(effects, [], "{} bytes of old words", old.len());
    // It floods once it has found the host itself.
    pair.to_host.clear();
    pair.run(50 * MS);
    assert!(pair.floods() && pair.limit == 50);
}

#[test]
fn an_agent_that_was_started_anew_is_told_everything() {
    let mut pair = Pair::new();
    pair.host.attest(Some(256), pair.now);
    pair.host.window(1, 40);
    pair.run(SILENCE);
    (pair.attested, pair.limit) = (None, 0);
    pair.guest = GuestEnd::new(HEARTBEAT_MS, capable(), 12, pair.now);
    pair.guest.connected(pair.now);
    pair.run(50 * MS);
    assert!(pair.floods() && pair.host.is_obeyed() && pair.limit == 40);
    // And the same with the host's.
    pair.host = HostEnd::new(HEARTBEAT_MS, 13, pair.now);
    pair.host.connected(pair.now);
    pair.run(50 * MS);
    assert!(!pair.floods() && pair.limit == 0, "the new host has attested nothing");
    pair.host.attest(Some(128), pair.now);
    pair.run(50 * MS);
    assert!(pair.floods() && pair.attested.unwrap().1 == 128);
}

#[test]
fn a_guest_without_a_mechanism_is_not_told_of_it() {
    let mut pair = Pair::new();
    pair.guest = GuestEnd::new(HEARTBEAT_MS, Capabilities::CERA, 9, pair.now);
    pair.guest.connected(pair.now);
    assert!(!pair.host.attest(Some(512), pair.now));
    pair.run(SILENCE);
    assert!(!pair.host.attest(Some(511), pair.now) && pair.host.window(1, 10));
    pair.run(SILENCE);
    assert!(pair.attested.is_none() && pair.limit == 10);
}

#[test]
fn a_mirror_is_nobody() {
    let mut pair = Pair::new();
    for _ in 0..100 {
        pair.host.outgoing(pair.now, &mut pair.to_guest);
        let bytes = std::mem::take(&mut pair.to_guest);
        assert!(pair.host.received(&bytes, pair.now).is_empty());
        pair.now += 10 * MS;
    }
    assert_eq!(pair.host.guest(), None);
}

#[test]
fn a_flood_is_not_listened_to() {
    for flood in [vec![0xaa; 20_000], frame(&Message::Heartbeat(Heartbeat::default())).repeat(1000)] {
        let mut pair = Pair::new();
        pair.run(SILENCE);
        assert!(pair.host.guest().is_some());
        let changes = pair.host.received(&flood, pair.now);
        assert_eq!(changes, [Change::Down(Why::Unruly), Change::Rest]);
        assert_eq!(pair.host.guest(), None);
        // Afterwards it may come back.
        pair.now += REST;
        pair.to_guest.clear();
        pair.run(2 * SILENCE);
        assert!(pair.host.guest().is_some());
    }
}

#[test]
fn of_many_windows_the_last_is_shared_out() {
    let mut pair = Pair::new();
    pair.run(SILENCE);
    let bytes: Vec<u8> =
        (1..100).flat_map(|epoch| frame(&Message::Window(Window { epoch, segments: epoch as u32 }))).collect();
    let effects = pair.guest.received(&bytes, pair.now);
    assert_eq!(effects, [Effect::Share(Window { epoch: 99, segments: 99 })]);
    // A limit that ended meanwhile has ended.
    let ended = [bytes, frame(&Message::Window(Window { epoch: 100, segments: 0 }))].concat();
    assert_eq!(pair.guest.received(&ended, pair.now).last(), Some(&Effect::Released));
}

/// A guest that the host has missed, and that has heard the host all the time, still has what it was told before.
#[test]
fn a_limit_that_ends_while_a_guest_is_silent_ends_there_too() {
    let mut pair = Pair::new();
    pair.run(SILENCE);
    pair.host.window(3, 40);
    pair.run(50 * MS);
    assert_eq!(pair.limit, 40);
    pair.effects.clear();
    while pair.host.guest().is_some() {
        pair.turn(true, false);
        pair.to_host.clear();
        pair.now += 10 * MS;
    }
    // In the epoch in which it was told its window.
    assert!(!pair.host.window(3, 0));
    pair.run(SILENCE);
    assert!(pair.host.guest().is_some());
    assert_eq!(pair.limit, 0);
    assert!(!pair.effects.iter().any(|effect| matches!(effect, Effect::Down(_))), "{:?}", pair.effects);
}

/// The guest has missed the host's heartbeats, and the host does not know it: what the host says then is not heard, and
/// is said again.
#[test]
fn a_window_that_was_not_heard_is_said_again() {
    let mut pair = Pair::new();
    pair.run(SILENCE);
    let end = pair.now + SILENCE + 2 * HEARTBEAT_MS as u32 * MS;
    while pair.now < end {
        pair.turn(false, true);
        pair.to_guest.clear();
        pair.now += 10 * MS;
    }
    assert!(pair.guest.host().is_none() && pair.host.window(1, 40), "one knows, and one does not");
    pair.run(SILENCE);
    assert_eq!((pair.limit, pair.host.guest().unwrap().epoch), (40, 1));
}

fn yes() -> Option<Reasons> {
    Some(Reasons::default())
}

fn no() -> Option<Reasons> {
    Some(Reasons::from_iter([Reason::Rps]))
}

impl Pair {
    /// Lets time pass in which the guest says nothing.
    fn run_without_a_word(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.turn(true, false);
            self.to_host.clear();
            self.now += 10 * MS;
        }
    }
}

#[test]
fn a_guests_word_is_heard_with_its_first_heartbeat_and_when_it_changes() {
    let mut pair = Pair::new();
    pair.guest.endpoint(yes(), pair.now);
    assert_eq!(pair.host.endpoint(), None);
    while pair.host.guest().is_none() {
        pair.turn(true, true);
    }
    assert_eq!(pair.host.endpoint(), yes());
    // Just after a heartbeat.
    pair.run(SILENCE);
    let sent = pair.host.counts().messages;
    while pair.host.counts().messages == sent {
        pair.run(10 * MS);
    }
    pair.guest.endpoint(no(), pair.now);
    pair.turn(true, true);
    assert_eq!(pair.host.endpoint(), no(), "without waiting for the next heartbeat");
    pair.run(SILENCE);
    let sent = pair.host.counts().messages;
    for _ in 0..10 {
        pair.guest.endpoint(no(), pair.now);
        pair.turn(true, true);
    }
    assert!(pair.host.counts().messages <= sent + 1, "what is no news is no heartbeat");
}

#[test]
fn that_a_guest_vouches_ends_with_its_heartbeats() {
    let mut pair = Pair::new();
    pair.guest.endpoint(yes(), pair.now);
    pair.run(SILENCE);
    pair.run_without_a_word(SILENCE + 20 * MS);
    assert_eq!((pair.host.guest(), pair.host.endpoint()), (None, None));
    pair.run(SILENCE);
    assert_eq!(pair.host.endpoint(), yes());
    let mut goodbye = Vec::new();
    pair.guest.goodbye(&mut goodbye);
    pair.host.received(&goodbye, pair.now);
    assert_eq!(pair.host.endpoint(), None);
}

/// A guest may be silent because it waits for its core, which is when data would be acknowledged for it.
#[test]
fn that_a_guest_does_not_vouch_outlives_its_silence() {
    let silent = || {
        let mut pair = Pair::new();
        pair.guest.endpoint(no(), pair.now);
        pair.run(SILENCE);
        pair.run_without_a_word(10 * SILENCE);
        assert_eq!((pair.host.guest(), pair.host.endpoint()), (None, no()));
        pair
    };
    let mut pair = silent();
    pair.guest.endpoint(yes(), pair.now);
    pair.run(2 * SILENCE);
    assert_eq!(pair.host.endpoint(), yes(), "it says otherwise");
    // Another agent, which says nothing.
    let mut pair = silent();
    pair.guest = GuestEnd::new(HEARTBEAT_MS, capable(), 10, pair.now);
    pair.guest.connected(pair.now);
    pair.run(2 * SILENCE);
    assert_eq!((pair.host.guest().is_some(), pair.host.endpoint()), (true, None));
    // The guest goes after all.
    let mut pair = silent();
    let mut goodbye = Vec::new();
    pair.guest.goodbye(&mut goodbye);
    pair.host.received(&goodbye, pair.now);
    assert_eq!(pair.host.endpoint(), None);
    // No VM any more.
    let mut pair = silent();
    pair.host.disconnected();
    assert_eq!(pair.host.endpoint(), None);
}

#[test]
fn a_guest_that_goes_or_is_another_one_takes_its_word_along() {
    for said in [yes(), no()] {
        let mut pair = Pair::new();
        pair.guest.endpoint(said, pair.now);
        pair.run(SILENCE);
        assert_eq!(pair.host.endpoint(), said);
        let other = Message::Hello(Hello {
            role: Role::Guest,
            version: 1,
            heartbeat_ms: HEARTBEAT_MS,
            capabilities: capable(),
            session: 77,
        });
        assert_eq!(pair.host.received(&frame(&other), pair.now), [Change::Down(Why::Replaced)]);
        assert_eq!(pair.host.endpoint(), None);
        let mut pair = Pair::new();
        pair.guest.endpoint(said, pair.now);
        pair.run(SILENCE);
        let mut goodbye = Vec::new();
        pair.guest.goodbye(&mut goodbye);
        pair.host.received(&goodbye, pair.now);
        assert_eq!(pair.host.endpoint(), None);
    }
}

/// What a connection can do to the two ends.
#[derive(Debug, Clone)]
enum Fate {
    /// All is well for this many milliseconds.
    Run(u64),
    /// Nothing arrives in one direction or in both for `ms`; then it arrives, or is lost.
    Stall { to_guest: bool, to_host: bool, ms: u64, is_lost: bool },
    /// Bytes that nobody sent.
    Noise { to_guest: bool, bytes: Vec<u8> },
    /// The host attests, or no longer.
    Attest(Option<u32>),
    /// A window.
    Window(u32),
    /// The guest's word, or none any more.
    Word(Option<bool>),
    /// The connection is cut and comes back.
    Cut,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        (1u64..500).prop_map(Fate::Run),
        (any::<bool>(), any::<bool>(), 1u64..1000, any::<bool>())
            .prop_map(|(to_guest, to_host, ms, is_lost)| Fate::Stall { to_guest, to_host, ms, is_lost }),
        (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..400))
            .prop_map(|(to_guest, bytes)| Fate::Noise { to_guest, bytes }),
        proptest::option::of(1u32..1000).prop_map(Fate::Attest),
        (0u32..1000).prop_map(Fate::Window),
        any::<Option<bool>>().prop_map(Fate::Word),
        Just(Fate::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the connection does, a guest floods only if a host that attests it was heard within three heartbeats,
    /// and a host takes a guest to vouch for its TCP only if the guest was heard as lately. Once the connection is well
    /// again, both agree.
    #[test]
    fn they_agree_whatever_happens(fates in proptest::collection::vec(fate(), 0..12)) {
        let mut pair = Pair::new();
        let (mut wanted, mut window, mut epoch, mut word) = (None, 0, 0, None);
        for fate in fates {
            match fate {
                Fate::Run(ms) => pair.run(ms as u32 * MS),
                Fate::Stall { to_guest, to_host, ms, is_lost } => {
                    let end = pair.now + ms as u32 * MS;
                    while pair.now < end {
                        pair.turn(!to_guest, !to_host);
                        pair.now += 10 * MS;
                    }
                    // Time passes in the guest as well.
                    let effects = pair.guest.expire(pair.now);
                    pair.obey(effects);
                    if to_guest && Duration::from_millis(ms) > SILENCE {
                        prop_assert!(!pair.floods() && pair.limit == 0);
                    }
                    if to_host && Duration::from_millis(ms) > SILENCE {
                        pair.host.expire(pair.now);
                        prop_assert_ne!(pair.host.endpoint(), yes());
                    }
                    if is_lost {
                        pair.to_guest.clear();
                        pair.to_host.clear();
                    }
                }
                Fate::Noise { to_guest: true, bytes } => pair.to_guest.extend(bytes),
                Fate::Noise { to_guest: false, bytes } => pair.to_host.extend(bytes),
                Fate::Attest(segments) => {
                    pair.host.attest(segments, pair.now);
                    wanted = segments;
                }
                Fate::Window(segments) => {
                    epoch += 1;
                    pair.host.window(epoch, segments);
                    window = segments;
                }
                Fate::Word(vouches) => {
                    word = vouches.and_then(|vouches| if vouches { yes() } else { no() });
                    pair.guest.endpoint(word, pair.now);
                }
                Fate::Cut => {
                    pair.to_guest.clear();
                    pair.to_host.clear();
                    pair.host.disconnected();
                    let effects = pair.guest.disconnected();
                    pair.obey(effects);
                    prop_assert!(!pair.floods() && pair.limit == 0);
                    pair.host.connected(pair.now);
                    pair.guest.connected(pair.now);
                }
            }
        }
        // Noise may hide a frame that follows it, and lost words are said again when they are missed.
        pair.run(4 * SILENCE);
        prop_assert!(pair.host.guest().is_some());
        prop_assert_eq!(pair.attested.filter(|(until, _)| pair.now < *until).map(|(_, segments)| segments), wanted);
        prop_assert!(pair.host.is_obeyed());
        prop_assert_eq!(pair.host.endpoint(), word);
        prop_assert_eq!((pair.limit, pair.host.guest().map(|guest| guest.epoch)), (window, Some(epoch)));
    }

    /// No bytes make either end do anything but rest, and none make it panic.
    #[test]
    fn noise_means_nothing(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 0..20)) {
        let mut pair = Pair::new();
        for piece in pieces {
            for change in pair.host.received(&piece, pair.now) {
                prop_assert_eq!(change, Change::Rest);
            }
            for effect in pair.guest.received(&piece, pair.now) {
                prop_assert_eq!(effect, Effect::Rest);
            }
            pair.now += MS;
        }
    }
}

/// A guest's end behind a socket that listens, as QEMU's does.
struct Qemu {
    listener: UnixListener,
    _directory: tempfile::TempDir,
    address: Target,
}

impl Qemu {
    fn accept(&self) -> UnixStream {
        let stream = self.listener.accept().unwrap().0;
        stream.set_read_timeout(Some(5 * MS)).unwrap();
        stream
    }

    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("channel");
        Self {
            listener: UnixListener::bind(&path).unwrap(),
            _directory: directory,
            address: HostAddress::Path(path).into(),
        }
    }
}

/// Runs a guest's end on a connection until `done`. Reading must give up after a short while.
fn guest_until(stream: &mut (impl Read + Write), end: &mut GuestEnd, mut done: impl FnMut(&[Effect]) -> bool) {
    let (deadline, mut buffer, mut seen) = (Instant::now() + Duration::from_secs(20), [0; 4096], Vec::new());
    while !done(&seen) {
        assert!(Instant::now() < deadline, "waited in vain; so far {seen:?}");
        if let Ok(length) = stream.read(&mut buffer) {
            assert!(length > 0, "the host has closed; so far {seen:?}");
            seen.extend(end.received(&buffer[..length], Instant::now()));
        }
        seen.extend(end.expire(Instant::now()));
        let mut out = Vec::new();
        end.outgoing(Instant::now(), &mut out);
        stream.write_all(&out).unwrap();
    }
}

fn guest_end() -> GuestEnd {
    let mut end = GuestEnd::new(HEARTBEAT_MS, capable(), session().unwrap(), Instant::now());
    end.connected(Instant::now());
    end
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        std::thread::sleep(5 * MS);
    }
}

#[test]
fn a_host_finds_its_guests_again() {
    let (qemu, other) = (Qemu::new(), Qemu::new());
    let channels = Channels::start().unwrap();
    assert!(!channels.attest(3, Some(512)) && !channels.window(3, 1, 10), "there is no such port");
    channels.set(3, "vnet3", Some(&qemu.address), HEARTBEAT_MS).unwrap();
    channels.set(4, "vnet4", Some(&other.address), HEARTBEAT_MS).unwrap();
    assert!(!channels.attest(3, Some(512)), "nobody is there yet");
    for _ in 0..2 {
        let (mut stream, mut end) = (qemu.accept(), guest_end());
        guest_until(&mut stream, &mut end, |seen| {
            seen.iter().any(|effect| matches!(effect, Effect::Attested { flood_segments: 512, .. }))
        });
        guest_until(&mut stream, &mut end, |_| channels.is_obeyed(3));
        assert!(channels.has_client(3) && !channels.has_client(4));
        assert!(channels.window(3, 5, 77));
        let share = Effect::Share(Window { epoch: 5, segments: 77 });
        guest_until(&mut stream, &mut end, |seen| seen.contains(&share));
        channels.window(3, 6, 0);
        guest_until(&mut stream, &mut end, |seen| seen.contains(&Effect::Released));
        // QEMU ends.
        drop(stream);
        wait_until("the guest to be missed", || channels.guest(3).is_none());
    }
    // The agent ends.
    let (mut stream, mut end) = (qemu.accept(), guest_end());
    guest_until(&mut stream, &mut end, |seen| seen.iter().any(|effect| matches!(effect, Effect::Up(_))));
    channels.end();
    guest_until(&mut stream, &mut end, |seen| seen.contains(&Effect::Down(Why::Goodbye)));
}

#[test]
fn garbage_costs_its_sender_and_nobody_else() {
    let (qemu, other) = (Qemu::new(), Qemu::new());
    let channels = Channels::start().unwrap();
    channels.set(3, "vnet3", Some(&qemu.address), HEARTBEAT_MS).unwrap();
    channels.set(4, "vnet4", Some(&other.address), HEARTBEAT_MS).unwrap();
    let (mut noisy, mut good) = (qemu.accept(), other.accept());
    let noise = std::thread::spawn(move || {
        let begin = Instant::now();
        let mut sent = 0;
        noisy.set_write_timeout(Some(50 * MS)).unwrap();
        while begin.elapsed() < Duration::from_millis(1500) {
            sent += noisy.write(&[0x5a; 4096]).unwrap_or(0);
        }
        sent
    });
    let mut end = guest_end();
    guest_until(&mut good, &mut end, |_| channels.has_client(4));
    guest_until(&mut good, &mut end, |_| noise.is_finished());
    assert!(channels.has_client(4), "the other guest was missed");
    let counts = channels.status(3).unwrap().counts;
    assert!(counts.rests >= 1 && counts.garbage_bytes < 100_000, "{counts:?} of {} bytes", noise.join().unwrap());
    assert!(channels.guest(3).is_none());
}

#[test]
fn a_path_that_is_no_channel_is_named() {
    let channels = Channels::start().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    channels.set(3, "vnet3", Some(&HostAddress::Path(file.path().to_owned()).into()), HEARTBEAT_MS).unwrap();
    wait_until("the trouble", || channels.status(3).unwrap().trouble.is_some());
    let trouble = channels.status(3).unwrap().trouble.unwrap();
    assert!(trouble.contains("neither a Unix socket nor a character device"), "{trouble}");
    channels.set(3, "vnet3", None, HEARTBEAT_MS).unwrap();
    assert_eq!(channels.status(3), None);
}

/// A host meets a guest's end on what `accept` returns, which is found at `address`.
fn they_meet(address: HostAddress, accept: impl FnOnce() -> Box<dyn ReadWrite>) {
    let channels = Channels::start().unwrap();
    channels.set(3, "vnet3", Some(&address.into()), HEARTBEAT_MS).unwrap();
    channels.attest(3, Some(512));
    let (mut guest, mut end) = (accept(), guest_end());
    guest_until(&mut guest, &mut end, |seen| {
        channels.is_obeyed(3) && seen.iter().any(|effect| matches!(effect, Effect::Attested { .. }))
    });
    assert!(channels.window(3, 1, 0x0a0d_1104), "bytes that a terminal would read as its own");
    let share = Effect::Share(Window { epoch: 1, segments: 0x0a0d_1104 });
    guest_until(&mut guest, &mut end, |seen| seen.contains(&share));
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

#[test]
fn a_channel_over_tcp() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    they_meet(HostAddress::Tcp(listener.local_addr().unwrap()), || {
        let stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(5 * MS)).unwrap();
        Box::new(stream)
    });
}

/// A character device, as a hypervisor that is a VM itself has for its guests.
#[test]
fn a_channel_over_a_character_device() {
    use std::os::fd::FromRawFd;

    let mut name = [0 as libc::c_char; 64];
    // SAFETY: the name is written into an array that is long enough, and the descriptor is nobody else's.
    let (master, path) = unsafe {
        let fd = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK);
        assert!(fd >= 0 && libc::grantpt(fd) == 0 && libc::unlockpt(fd) == 0);
        assert_eq!(libc::ptsname_r(fd, name.as_mut_ptr(), name.len()), 0);
        (std::fs::File::from_raw_fd(fd), std::ffi::CStr::from_ptr(name.as_ptr()).to_str().unwrap().to_owned())
    };
    they_meet(HostAddress::Path(path.into()), || Box::new(Unhurried(master)));
}

/// Sleeps while there is nothing to read, so that the reader does not spin.
struct Unhurried(std::fs::File);

impl Read for Unhurried {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(buffer);
        if read.is_err() {
            std::thread::sleep(5 * MS);
        }
        read
    }
}

impl Write for Unhurried {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
