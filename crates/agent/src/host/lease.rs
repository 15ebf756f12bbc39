//! Leases, for trials: on some ports a mechanism has another mode than is configured, for as long as somebody renews
//! the lease. Leases are in the agent's memory alone, so whatever ends, what is configured holds again. Time comes in
//! as an argument.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use evenkeel_quote::shown;
use evenkeel_settings::Mode;
use evenkeel_settings::host::{Mechanism, PortSettings};

use super::control::lease::{Completion, Trial, Wanted};

/// The longest time without a renewal.
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// How often exchanges that are over are fetched: the programs' buffer has room for some ten thousand.
const FETCH_EVERY: Duration = Duration::from_millis(100);
/// How many exchanges are kept for the client that has the lease.
const KEPT: usize = 100_000;
/// How many leases are remembered after their end.
const ENDED: usize = 64;

/// A port of a lease.
#[derive(Debug)]
struct Leased {
    name: String,
    /// What holds there otherwise.
    configured: PortSettings,
}

/// A lease that holds.
#[derive(Debug)]
struct Lease {
    id: u64,
    mechanism: Mechanism,
    mode: Mode,
    who: String,
    ports: BTreeMap<u32, Leased>,
    /// Since when exchanges are timed, in the datapath's clock.
    timed_ns: u64,
    until: Instant,
    completions: Vec<Completion>,
    lost: u64,
}

/// A port whose settings change, by index and name.
pub(super) type Changed = (u32, String);

/// All leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    leases: Vec<Lease>,
    /// Why those that were not given back have ended.
    ended: VecDeque<(u64, String)>,
    fetched: Option<Instant>,
    last_id: u64,
}

impl Leases {
    fn of(&self, ifindex: u32) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.ports.contains_key(&ifindex))
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.leases.iter().position(|lease| lease.id == id)
    }

    /// Who has a port.
    pub fn holder(&self, ifindex: u32) -> Option<&str> {
        self.of(ifindex).map(|lease| lease.who.as_str())
    }

    /// Begins a lease on ports that nobody has; `now_ns` is of the datapath's clock. Returns its number, which no other
    /// lease has, not even one of an earlier agent.
    pub fn begin(&mut self, wanted: &Wanted, ports: Vec<(Changed, PortSettings)>, now: Instant, now_ns: u64) -> u64 {
        let id = now_ns.max(self.last_id + 1);
        self.last_id = id;
        let ports = ports.into_iter().map(|((ifindex, name), configured)| (ifindex, Leased { name, configured }));
        self.leases.push(Lease {
            id,
            mechanism: wanted.mechanism,
            mode: wanted.mode,
            who: wanted.who.clone(),
            ports: ports.collect(),
            timed_ns: now_ns,
            until: now + length(wanted.for_ms),
            completions: Vec::new(),
            lost: 0,
        });
        id
    }

    /// Renews a lease, with a mode; returns the ports whose mode changes.
    ///
    /// # Errors
    /// Why it holds no more, in words that go on from "the agent".
    pub fn renew(&mut self, id: u64, mode: Mode, for_ms: u32, now: Instant) -> Result<Vec<Changed>, String> {
        let Some(position) = self.position(id) else { return Err(self.why_ended(id)) };
        let lease = &mut self.leases[position];
        lease.until = now + length(for_ms);
        if lease.mode == mode {
            return Ok(Vec::new());
        }
        lease.mode = mode;
        Ok(lease.ports.iter().map(|(ifindex, port)| (*ifindex, port.name.clone())).collect())
    }

    /// Why a lease holds no more, or that there was none, in words that go on from "the agent".
    pub fn why_ended(&self, id: u64) -> String {
        let why = self.ended.iter().find(|(ended, _)| *ended == id).map(|(_, why)| why.as_str());
        format!("has ended the trial: {}", why.unwrap_or("it has no such lease, as after a restart"))
    }

    /// Ends a lease; returns its ports. A client that tries to renew it is told `why`.
    pub fn end(&mut self, id: u64, why: Option<&str>) -> Vec<Changed> {
        let Some(position) = self.position(id) else { return Vec::new() };
        let lease = self.leases.swap_remove(position);
        if let Some(why) = why {
            self.ended.truncate(ENDED - 1);
            self.ended.push_front((id, why.to_owned()));
        }
        lease.ports.into_iter().map(|(ifindex, port)| (ifindex, port.name)).collect()
    }

    /// Ends the lease that has a port; returns all its ports.
    pub fn end_on(&mut self, ifindex: u32, why: &str) -> Vec<Changed> {
        self.of(ifindex).map(|lease| lease.id).map_or_else(Vec::new, |id| self.end(id, Some(why)))
    }

    /// Ends the lease that has a port, if its VM is about to leave, or if other settings are configured there than when
    /// it began; returns all its ports.
    pub fn check(&mut self, ifindex: u32, name: &str, configured: &PortSettings, is_offline: bool) -> Vec<Changed> {
        let Some(port) = self.of(ifindex).and_then(|lease| lease.ports.get(&ifindex)) else { return Vec::new() };
        let named = shown(&port.name);
        let why = if is_offline {
            format!("{named} is offline, because its VM is about to leave")
        } else if port.configured != *configured || port.name != name {
            format!("{named} is configured otherwise than when it began")
        } else {
            return Vec::new();
        };
        self.end_on(ifindex, &why)
    }

    /// Lays a lease's mode over what is configured on a port. Returns since when the port's exchanges are timed; 0:
    /// they are not.
    pub fn lay_over(&self, ifindex: u32, settings: &mut PortSettings) -> u64 {
        let Some(lease) = self.of(ifindex) else { return 0 };
        settings.set_mode(lease.mechanism, lease.mode);
        lease.timed_ns
    }

    /// What `status` says of a port.
    pub fn shown(&self, ifindex: u32, now: Instant) -> Option<Trial> {
        let lease = self.of(ifindex)?;
        let configured = lease.ports.get(&ifindex)?.configured.mode(lease.mechanism);
        let ends_in_ms = lease.until.saturating_duration_since(now).as_millis() as u64;
        Some(Trial { mechanism: lease.mechanism, mode: lease.mode, configured, who: lease.who.clone(), ends_in_ms })
    }

    /// Numbers of the leases whose time is over.
    pub fn expired(&self, now: Instant) -> Vec<u64> {
        self.leases.iter().filter(|lease| lease.until <= now).map(|lease| lease.id).collect()
    }

    /// Numbers of all.
    pub fn all(&self) -> Vec<u64> {
        self.leases.iter().map(|lease| lease.id).collect()
    }

    /// When there is something to do: exchanges are to be fetched, or a lease ends.
    pub fn due(&self) -> Option<Instant> {
        let end = self.leases.iter().map(|lease| lease.until).min()?;
        Some(self.fetched.map_or(end, |fetched| end.min(fetched + FETCH_EVERY)))
    }

    /// Keeps exchanges that were fetched, but not those of ports without a lease.
    pub fn keep(&mut self, completions: &[Completion], now: Instant) {
        self.fetched = Some(now);
        for completion in completions {
            let lease = self.leases.iter_mut().find(|lease| lease.ports.contains_key(&completion.ifindex));
            match lease {
                Some(lease) if lease.completions.len() < KEPT => lease.completions.push(*completion),
                Some(lease) => lease.lost += 1,
                None => {}
            }
        }
    }

    /// Hands over what a lease has kept, and how much of it was lost so far.
    pub fn take(&mut self, id: u64) -> (Vec<Completion>, u64) {
        let Some(position) = self.position(id) else { return Default::default() };
        let lease = &mut self.leases[position];
        (std::mem::take(&mut lease.completions), lease.lost)
    }
}

fn length(for_ms: u32) -> Duration {
    Duration::from_millis(for_ms.into()).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use evenkeel_settings::host::Config;

    use super::*;

    fn wanted(mode: Mode) -> Wanted {
        let (ports, who) = (vec!["vp1".to_owned(), "vp2".to_owned()], "somebody".to_owned());
        Wanted { ports, mechanism: Mechanism::Vsnoop, mode, who, for_ms: 1000 }
    }

    fn configured(name: &str) -> PortSettings {
        Config::default().settings(name)
    }

    fn begun(now: Instant) -> (Leases, u64) {
        let mut leases = Leases::default();
        let ports = [(1, "vp1"), (2, "vp2")].map(|(ifindex, name)| ((ifindex, name.to_owned()), configured(name)));
        let id = leases.begin(&wanted(Mode::Enforce), ports.into(), now, 77);
        (leases, id)
    }

    #[test]
    fn a_lease_lies_over_what_is_configured_until_it_ends() {
        let now = Instant::now();
        let (mut leases, id) = begun(now);
        let mut settings = configured("vp1");
        let before = settings.clone();
        assert_eq!(leases.lay_over(1, &mut settings), 77);
        assert_eq!(settings.mode(Mechanism::Vsnoop), Mode::Enforce);
        settings.set_mode(Mechanism::Vsnoop, before.mode(Mechanism::Vsnoop));
        assert_eq!(settings, before, "nothing else is touched");
        assert_eq!(leases.lay_over(3, &mut settings), 0);

        assert!(leases.expired(now + Duration::from_millis(999)).is_empty());
        assert_eq!(leases.renew(id, Mode::Enforce, 3000, now), Ok(vec![]));
        assert_eq!(leases.renew(id, Mode::Observe, 3000, now).unwrap().len(), 2);
        assert!(leases.expired(now + Duration::from_millis(2999)).is_empty());
        assert_eq!(leases.due(), Some(now + Duration::from_secs(3)));
        assert_eq!(leases.expired(now + Duration::from_secs(3)), [id]);
        let ports = leases.end(id, Some("nobody has renewed it"));
        assert_eq!(ports, [(1, "vp1".to_owned()), (2, "vp2".to_owned())]);
        assert_eq!(leases.lay_over(1, &mut settings), 0);
        let why = leases.renew(id, Mode::Observe, 3000, now).unwrap_err();
        assert!(why.contains("nobody has renewed it"), "{why}");
        assert!(leases.renew(id + 1, Mode::Observe, 3000, now).unwrap_err().contains("no such lease"));
        assert_eq!(leases.due(), None);
    }

    #[test]
    fn nobody_keeps_a_port_for_long_without_renewing() {
        let now = Instant::now();
        let (mut leases, id) = begun(now);
        leases.renew(id, Mode::Enforce, u32::MAX, now).unwrap();
        assert_eq!(leases.expired(now + LONGEST), [id]);
    }

    #[test]
    fn another_configuration_ends_it_and_the_same_does_not() {
        let (mut leases, id) = begun(Instant::now());
        let mut other = configured("vp2");
        assert!(leases.check(2, "vp2", &other, false).is_empty());
        assert_eq!(leases.holder(2), Some("somebody"));
        other.set_mode(Mechanism::Cera, Mode::Enforce);
        assert_eq!(leases.check(2, "vp2", &other, false).len(), 2);
        assert!(leases.why_ended(id).contains("vp2 is configured otherwise"), "{}", leases.why_ended(id));
        assert_eq!(leases.holder(1), None);
    }

    #[test]
    fn a_vm_that_is_about_to_leave_ends_it() {
        let (mut leases, id) = begun(Instant::now());
        assert!(leases.check(3, "vp3", &configured("vp3"), true).is_empty());
        // What is configured for a mechanism that is off anyhow is the same offline.
        assert_eq!(leases.check(1, "vp1", &configured("vp1"), true).len(), 2);
        assert!(leases.why_ended(id).contains("vp1 is offline"), "{}", leases.why_ended(id));
        assert_eq!(leases.holder(2), None);
    }

    #[test]
    fn each_has_the_exchanges_of_its_ports_and_no_more_than_there_is_room_for() {
        let now = Instant::now();
        let (mut leases, id) = begun(now);
        let of = |ifindex| Completion { ifindex, ..Completion::default() };
        leases.keep(&[of(1), of(3), of(2)], now);
        assert_eq!(leases.due(), Some(now + FETCH_EVERY));
        assert_eq!(leases.take(id), (vec![of(1), of(2)], 0));
        assert_eq!(leases.take(id), (vec![], 0));
        leases.keep(&vec![of(1); KEPT + 3], now);
        assert_eq!((leases.take(id).0.len(), leases.take(id).1), (KEPT, 3));
    }

    #[test]
    fn no_number_is_another_leases() {
        let (mut leases, id) = begun(Instant::now());
        leases.end(id, None);
        assert_ne!(leases.begin(&wanted(Mode::Observe), vec![], Instant::now(), 77), id);
    }
}
