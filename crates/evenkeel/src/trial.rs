//! A trial as it runs: has the agent change modes as slots say, and gathers what it has timed meanwhile.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use evenkeel_agent::host::{self, Client, Completion, HostError, Leased};
use evenkeel_quote::shown;
use evenkeel_report::trial::{Direction, Exchange, Samples, Slot, Trial, judge, slots};
use evenkeel_scenario::batch::Stop;
use evenkeel_scenario::provenance;
use evenkeel_settings::Mode;
use evenkeel_settings::host::Mechanism;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::error::CliError;
use crate::exit::Exit;
use crate::program::VERSION;

/// How long the agent waits for a word before it goes back to what is configured.
const LEASE_MS: u32 = 5000;
/// How often it gets one.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How soon Ctrl-C is noticed.
const STEP: Duration = Duration::from_millis(50);

/// What is to be tried.
pub struct Wanted {
    /// Ports, by name.
    pub ports: Vec<String>,
    /// What is tried on them.
    pub mechanism: Mechanism,
    /// How long.
    pub time: Duration,
    /// Mean length of a slot.
    pub slot: Duration,
    /// What slots and intervals are drawn from.
    pub seed: u64,
    /// Where the agent answers.
    pub socket: PathBuf,
    /// The command, for the report.
    pub command: String,
    /// Whether to show how far it is.
    pub is_shown: bool,
}

/// What has come of it.
pub struct Outcome {
    /// The trial, as far as it came.
    pub trial: Trial,
    /// Why it ended before its time, if it did.
    pub trouble: Option<CliError>,
}

/// A trial that is under way.
struct Running<'w> {
    wanted: &'w Wanted,
    stop: Stop,
    id: u64,
    samples: Samples,
    exchanges: u64,
    lost: u64,
}

/// What has become of a slot.
enum Ran {
    Whole,
    Stopped,
}

/// Tries it.
///
/// # Errors
/// If it cannot begin.
pub fn run(wanted: &Wanted) -> Result<Outcome, CliError> {
    let slots = slots(wanted.time, wanted.slot, wanted.seed);
    let Some(first) = slots.first() else {
        let what = "there is no time for two slots: --for is at least twice as long as --slot, and best forty times";
        return Err(CliError::new(Exit::Usage, what));
    };
    let stop = Stop::on_signals().map_err(|e| CliError::new(Exit::Failed, format!("cannot catch signals: {e}")))?;
    let started = provenance::now();
    let begun = Instant::now();
    let leased = Client::connect(&wanted.socket)?.lease(host::Wanted {
        ports: wanted.ports.clone(),
        mechanism: wanted.mechanism,
        mode: mode(first),
        who: format!("evenkeel trial, process {}", std::process::id()),
        for_ms: LEASE_MS,
    })?;
    let mut running = Running { wanted, stop, id: leased.id, samples: Samples::default(), exchanges: 0, lost: 0 };
    let mut notes = running.obstacles();
    let trouble = running.all(&slots, &leased);
    if let Some(trouble) = &trouble {
        notes.push(format!("It ended before its time: {}.", trouble.what));
    }
    if running.lost > 0 {
        notes.push(format!("{} exchanges more were over than could be kept.", running.lost));
    }
    let trial = Trial {
        mechanism: wanted.mechanism.word().to_owned(),
        ports: wanted.ports.clone(),
        started,
        seconds: begun.elapsed().as_secs_f64(),
        slot_seconds: wanted.slot.as_secs_f64(),
        seed: wanted.seed,
        command: wanted.command.clone(),
        version: VERSION.clone(),
        notes,
        judgement: judge(&running.samples, directions(wanted.mechanism), wanted.seed),
    };
    Ok(Outcome { trial, trouble })
}

/// What a mechanism is about.
fn directions(mechanism: Mechanism) -> &'static [Direction] {
    match mechanism {
        Mechanism::Vflood => &[Direction::Sends],
        Mechanism::Vsnoop => &[Direction::Receives],
        // A request waits in the uplink's queue, and so do ACKs for what the VM receives.
        Mechanism::Cera | Mechanism::Proboscis => &Direction::ALL,
    }
}

fn mode(slot: &Slot) -> Mode {
    if slot.enforces { Mode::Enforce } else { Mode::Observe }
}

impl Running<'_> {
    /// Runs all slots and ends the trial. Returns why it ended early, if it did.
    fn all(&mut self, slots: &[Slot], leased: &Leased) -> Option<CliError> {
        let bar = bar(self.wanted, slots);
        let mut begun = Some(leased.changed_ns.1);
        let mut trouble = None;
        for (position, slot) in slots.iter().enumerate() {
            bar.set_message(format!("{}, {} exchanges", mode(slot), self.exchanges));
            match self.one(slot, begun.take(), &bar) {
                Ok(Ran::Whole) => continue,
                Ok(Ran::Stopped) => trouble = Some(CliError::new(Exit::Interrupted, "it was interrupted")),
                Err(error) => trouble = Some(error.into()),
            }
            // Slots count in pairs: a pair that is not whole does not count.
            self.samples.keep(position - position % 2);
            break;
        }
        bar.finish_and_clear();
        match Client::connect(&self.wanted.socket).and_then(|mut client| client.give_back(self.id)) {
            Ok((leased, completions)) => {
                self.samples.end(leased.changed_ns.0);
                self.add(&leased, &completions);
            }
            Err(error) => trouble = trouble.or_else(|| Some(error.into())),
        }
        trouble
    }

    /// Runs a slot; `begun`: since when its mode holds, if it does already.
    fn one(&mut self, slot: &Slot, begun: Option<u64>, bar: &ProgressBar) -> Result<Ran, HostError> {
        let start = Instant::now();
        match begun {
            Some(from_ns) => self.samples.begin(slot, from_ns),
            None => self.renew(slot, true)?,
        }
        let mut renewed = start;
        while start.elapsed() < slot.length {
            if self.stop.is_set() {
                return Ok(Ran::Stopped);
            }
            if renewed.elapsed() >= RENEW_EVERY {
                renewed = Instant::now();
                self.renew(slot, false)?;
            }
            let left = slot.length.saturating_sub(start.elapsed());
            std::thread::sleep(left.min(STEP));
        }
        bar.inc(slot.length.as_millis() as u64);
        Ok(Ran::Whole)
    }

    /// Tells the agent that somebody is here, and the mode.
    fn renew(&mut self, slot: &Slot, begins: bool) -> Result<(), HostError> {
        // A connection for each: the agent may have its socket in another place by now.
        let (leased, completions) = Client::connect(&self.wanted.socket)?.renew(self.id, mode(slot), LEASE_MS)?;
        if begins {
            let (until_ns, from_ns) = leased.changed_ns;
            self.samples.end(until_ns);
            self.samples.begin(slot, from_ns);
        }
        self.add(&leased, &completions);
        Ok(())
    }

    fn add(&mut self, leased: &Leased, completions: &[Completion]) {
        self.lost = leased.lost;
        self.exchanges += completions.len() as u64;
        completions.iter().for_each(|completion| self.samples.add(&exchange(completion)));
    }

    /// What may keep the mechanism from doing anything, as `status` says it.
    fn obstacles(&self) -> Vec<String> {
        let status = Client::connect(&self.wanted.socket).and_then(|mut client| client.status());
        let Ok(status) = status else { return Vec::new() };
        let mut notes = Vec::new();
        for port in status.ports.iter().filter(|port| self.wanted.ports.contains(&port.name)) {
            let name = shown(&port.name);
            let obstacles = port.vsnoop.as_ref().map(|vsnoop| vsnoop.obstacles()).unwrap_or_default();
            if self.wanted.mechanism == Mechanism::Vsnoop && !obstacles.is_empty() {
                notes.push(format!("No early ACKs on {name} when it began: {}.", obstacles.join("; ")));
            }
            if self.wanted.mechanism == Mechanism::Vflood {
                notes.extend(vflood_obstacle(port));
            }
        }
        notes
    }
}

/// What keeps a port's VM from flooding.
fn vflood_obstacle(port: &host::Port) -> Option<String> {
    let name = shown(&port.name);
    let guest = port.channel.as_ref().and_then(|channel| channel.guest.as_ref());
    let why = match guest {
        None if port.channel.is_none() => "there is no channel to an agent in the guest",
        None => "no agent in the guest answered on the channel",
        Some(guest) if !guest.has_vflood => "the guest's agent had no vflood (vflood.mode in its guest.toml)",
        Some(_) if port.vflood.as_ref().is_some_and(|vflood| vflood.rests) => {
            return Some(format!("vFlood rested on {name} when it began, because the VM had its core."));
        }
        Some(_) => return None,
    };
    Some(format!("The VM of {name} did not flood when it began: {why}."))
}

fn exchange(completion: &Completion) -> Exchange {
    Exchange {
        begin_ns: completion.begin_ns,
        end_ns: completion.end_ns,
        bytes_from_vm: completion.bytes_from_vm,
        bytes_to_vm: completion.bytes_to_vm,
        handshake_us: completion.handshake_us,
        again: completion.again_from_vm.saturating_add(completion.again_to_vm),
        timeouts: completion.timeouts_from_vm.saturating_add(completion.timeouts_to_vm),
    }
}

/// The bar that shows how far the trial is.
fn bar(wanted: &Wanted, slots: &[Slot]) -> ProgressBar {
    let length: Duration = slots.iter().map(|slot| slot.length).sum();
    let target = if wanted.is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("trial: [{bar:24}] {msg} ({elapsed} gone)");
    let bar = ProgressBar::with_draw_target(Some(length.as_millis() as u64), target);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_keeps_vflood_from_a_guest_is_named() {
        let named = |channel: serde_json::Value, rests: bool| {
            let vflood = json!({ "mode": "observe", "trouble": null, "rests": rests, "held_segments": 0,
                "promised_segments": 0, "buffer_segments": 9 });
            let mut port = host::Port { name: "vnet\n7".to_owned(), ..host::Port::default() };
            port.channel = serde_json::from_value(channel).unwrap();
            port.vflood = serde_json::from_value(vflood).unwrap();
            vflood_obstacle(&port)
        };
        let with = |guest: serde_json::Value| {
            json!({ "address": "vsock:3:1", "is_connected": true, "trouble": null, "guest": guest, "messages": 0,
                "garbage_bytes": 0, "rests": 0 })
        };
        let agent =
            |has_vflood| json!({ "has_vflood": has_vflood, "is_flooding": false, "has_cera": true, "epoch": 0 });
        let says = |note: Option<String>, why: &str| assert!(note.as_ref().unwrap().contains(why), "{note:?}");
        says(named(json!(null), false), "of vnet\\n7 did not flood when it began: there is no channel");
        says(named(with(json!(null)), true), "no agent in the guest answered");
        says(named(with(agent(false)), true), "had no vflood");
        says(named(with(agent(true)), true), "because the VM had its core");
        assert_eq!(named(with(agent(true)), false), None);
    }
}
