//! What the guest's agent has loaded and changed, and what it does when the host has said something.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_settings::Mode;
use evenkeel_settings::guest::Config;
use evenkeel_settings::vflood::Shadow;

use super::error::GuestError;
use super::intf;
use super::kernel::KernelReading;
use super::programs::{self, Cera, Control, Passed, Vflood};
use super::state::State;
use crate::channel::wire::Capabilities;
use crate::channel::{Effect, GuestEnd, Reasons, session};
use crate::common::clock::now_ns;

/// F-RTO takes the ACKs of what the host lets out for proof that nothing was lost.
const F_RTO: &str = "net.ipv4.tcp_frto";
/// The congestion control of connections that choose none.
const DEFAULT_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// The agent, without its connection.
pub(super) struct Work {
    config: Config,
    pin_dir: PathBuf,
    kernel: KernelReading,
    state: State,
    control: Control,
    vflood: Option<Vflood>,
    cera: Option<Cera>,
    /// Until when a host's agent counts as there.
    host_until: Option<Instant>,
    attested_until: Option<Instant>,
    flood_segments: u32,
    /// The session of the host's agent that attested last.
    host: u32,
    off_core_permille: Option<u16>,
    /// What this guest says of its TCP.
    endpoint: Option<Reasons>,
    /// How many network cards are up; `None` if that is not known.
    cards: Option<usize>,
    /// The network namespace that the host's word is about.
    namespace: u32,
    /// The window to share out: 0 ends limits.
    window: Option<u32>,
    /// The last pass could not set all windows.
    has_failed: bool,
    /// The earliest time of the next pass: passes may take only so much of a core.
    pass_at: Instant,
}

fn mode(mode: Mode) -> u32 {
    match mode {
        Mode::Off => intf::EK_GUEST_OFF,
        Mode::Observe => intf::EK_GUEST_OBSERVE,
        Mode::Enforce => intf::EK_GUEST_ENFORCE,
    }
}

/// The algorithm of the shadow window, as the programs have it.
pub(super) fn congestion(shadow: Shadow) -> u32 {
    match shadow {
        Shadow::Reno => intf::CONGESTION_RENO,
        Shadow::Cubic => intf::CONGESTION_CUBIC,
    }
}

impl Work {
    /// Loads what the configuration asks for.
    ///
    /// # Errors
    /// [`GuestError`], with what to do next.
    pub fn begin(config: Config, run_dir: &Path, pin_dir: &Path) -> Result<Self, GuestError> {
        let kernel = KernelReading::take();
        if let Some(lacking) = kernel.lacking() {
            return Err(GuestError::Missing {
                what: lacking.to_owned(),
                help: "`evenkeel doctor --features` lists what this kernel has; without an agent the host limits this \
                    guest by itself"
                    .to_owned(),
            });
        }
        programs::make_pin_dir(pin_dir)?;
        let before = programs::read_control(pin_dir).unwrap_or_default();
        let control = Control::open(pin_dir)?;
        let mut work = Self {
            config: Config::default(),
            pin_dir: pin_dir.to_owned(),
            kernel,
            state: State::load(run_dir)?,
            control,
            vflood: None,
            cera: None,
            host_until: None,
            attested_until: None,
            flood_segments: 0,
            host: before.host,
            off_core_permille: None,
            endpoint: None,
            cards: None,
            namespace: programs::namespace()?,
            window: None,
            has_failed: false,
            pass_at: Instant::now(),
        };
        work.set_up(config)?;
        Ok(work)
    }

    /// Makes a configuration the one that holds, or leaves the one before it.
    ///
    /// # Errors
    /// [`GuestError`]: the configuration before it holds, unless it is [`GuestError::InPart`].
    pub fn adopt(&mut self, config: Config) -> Result<(), GuestError> {
        let before = self.config.clone();
        let Err(why) = self.set_up(config) else { return Ok(()) };
        match self.set_up(before) {
            Ok(()) => Err(why),
            Err(also) => Err(GuestError::InPart { why: Box::new(why), also: Box::new(also) }),
        }
    }

    /// Loads and sets what a configuration asks for, and takes back what it does not.
    ///
    /// # Errors
    /// [`GuestError`]: then it holds in part only.
    fn set_up(&mut self, config: Config) -> Result<(), GuestError> {
        if config.vflood.mode == Mode::Off {
            // Nothing may get an algorithm that is about to go.
            self.state.put_back(DEFAULT_CONTROL)?;
            if let Some(vflood) = self.vflood.take() {
                vflood.unload(&self.control)?;
            }
        } else if self.vflood.is_none() {
            self.vflood = Some(Vflood::load(&self.pin_dir, &self.kernel)?);
        }
        if config.cera.mode == Mode::Off {
            if let Some(cera) = self.cera.take() {
                cera.unload()?;
            }
        } else if self.cera.is_none() {
            self.cera = Some(Cera::load(&self.pin_dir)?);
        }
        if let Some(cera) = &mut self.cera {
            cera.leave_out(&config.channel.address.0);
        }
        self.config = config;
        self.tell()?;
        let vflood = &self.config.vflood;
        let floods = vflood.mode == Mode::Enforce;
        for (name, value, wanted) in
            [(F_RTO, "0", floods && vflood.disable_f_rto), (DEFAULT_CONTROL, "vflood", vflood.default)]
        {
            if wanted {
                self.state.set(name, value)?;
            } else {
                self.state.put_back(name)?;
            }
        }
        Ok(())
    }

    /// The configuration that holds.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The guest's end of the channel, as this configuration has it.
    ///
    /// # Errors
    /// If no number can be drawn for the session.
    pub fn end(&self) -> Result<GuestEnd, GuestError> {
        let mut capabilities = Capabilities::default();
        // To the host, a guest that only counts is one that lacks the mechanism.
        if self.config.vflood.mode == Mode::Enforce {
            capabilities = capabilities.with(Capabilities::VFLOOD);
        }
        if self.shares() {
            capabilities = capabilities.with(Capabilities::CERA);
        }
        let session = session().map_err(|error| GuestError::io("cannot draw a number for the session", error))?;
        Ok(GuestEnd::new(self.config.channel.heartbeat_ms.get() as u16, capabilities, session, Instant::now()))
    }

    /// Whether CERA's client shares windows out. The host's window is for what goes by one network card, and nothing
    /// says by which: with several, the host limits this guest's connections alone.
    fn shares(&self) -> bool {
        self.config.cera.mode == Mode::Enforce && self.cards.is_some_and(|cards| cards <= 1)
    }

    /// Notes how many network cards are up. Returns whether the host is to be told in a new session what this guest
    /// can do.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn cards(&mut self, cards: Option<usize>) -> Result<bool, GuestError> {
        if self.cards == cards {
            return Ok(false);
        }
        let before = self.shares();
        self.cards = cards;
        self.tell()?;
        if self.config.cera.mode == Mode::Enforce && !self.shares() {
            let cards = cards.map_or("an unknown number of".to_owned(), |cards| cards.to_string());
            tracing::info!("CERA is left to the host, whose window is for one network card: {cards} are up");
        }
        Ok(self.shares() != before)
    }

    /// Notes the share of the last seconds in which this guest had no core; the next change of what holds writes it.
    pub fn off_core(&mut self, permille: Option<u16>) {
        self.off_core_permille = permille;
    }

    /// What this guest says of its TCP.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn endpoint(&mut self, said: Option<Reasons>) -> Result<(), GuestError> {
        if self.endpoint == said {
            return Ok(());
        }
        self.endpoint = said;
        self.tell()
    }

    /// Until when a host's agent counts as there, should it say nothing more.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn expect_host(&mut self, until: Option<Instant>) -> Result<(), GuestError> {
        if self.host_until == until {
            return Ok(());
        }
        self.host_until = until;
        self.tell()
    }

    /// Does what the host has said. Returns whether the host is to hear of it at once.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn obey(&mut self, effect: Effect) -> Result<bool, GuestError> {
        match effect {
            Effect::Up(hello) => tracing::info!(heartbeat_ms = hello.heartbeat_ms, "the host's agent is there"),
            Effect::Down(why) => tracing::info!("the host's agent is gone, TCP is plain: {why}"),
            Effect::Attested { until, flood_segments, host } => {
                self.host = host;
                let is_new = self.attested_until.is_none() || self.flood_segments != flood_segments;
                self.attested_until = Some(until);
                self.flood_segments = flood_segments;
                self.tell()?;
                return Ok(is_new);
            }
            Effect::Retracted => {
                self.attested_until = None;
                self.tell()?;
                return Ok(true);
            }
            Effect::Share(window) => self.window = Some(window.segments),
            Effect::Released => self.window = Some(0),
            Effect::Rest => tracing::warn!("the host sends garbage: not listened to for a second"),
        }
        Ok(false)
    }

    /// Writes what holds where the programs and `--status` read it, with vFlood or without.
    fn tell(&self) -> Result<(), GuestError> {
        let ns = |until: Option<Instant>| {
            let left =
                until.map(|until| until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
            left.map_or(0, |left| now_ns() + left.as_nanos() as u64)
        };
        self.control.set(&intf::ek_guest_control {
            attested_until_ns: ns(self.attested_until),
            host_until_ns: ns(self.host_until),
            version: intf::EK_GUEST_VERSION,
            mode: mode(self.config.vflood.mode),
            congestion: congestion(self.config.vflood.congestion_control),
            flood_segments: self.flood_segments,
            host: self.host,
            off_core: self.off_core_permille.map_or(0, |permille| 1 + u32::from(permille)),
            endpoint: Reasons::to_bits(self.endpoint),
            cards: self.cards.map_or(0, |cards| 1 + cards as u32),
            namespace: self.namespace,
        })
    }

    /// When a window is to be shared out, if one is.
    pub fn pass_at(&self) -> Option<Instant> {
        self.window.and(self.cera.as_ref()).map(|_| self.pass_at)
    }

    /// Shares the window out.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn pass(&mut self) -> Result<(), GuestError> {
        let (Some(cera), Some(window)) = (&mut self.cera, self.window.take()) else { return Ok(()) };
        let passed = cera.share(window, mode(self.config.cera.mode))?;
        let Passed { flows, changed, foreign, failed, .. } = passed;
        tracing::debug!(window, flows, changed, foreign, failed, took_us = passed.took.as_micros(), "shared out");
        // Once, not with every pass: a route may lock its connections' algorithm.
        if failed > 0 && !self.has_failed {
            tracing::warn!(failed, "windows of connections cannot be set; the host limits these alone");
        }
        self.has_failed = failed > 0;
        self.pass_at = Instant::now() + rest(passed.took, self.config.cera.max_core_percent.get());
        Ok(())
    }

    /// The agent ends: nothing is attested, and limits end. What is registered and set stays for the next one.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn farewell(&mut self) -> Result<(), GuestError> {
        (self.host_until, self.attested_until, self.endpoint, self.cards) = (None, None, None, None);
        self.tell()?;
        if let Some(cera) = self.cera.take() {
            cera.unload()?;
        }
        Ok(())
    }
}

/// How long to rest after a pass, so that passes take no more than this share of a core.
fn rest(took: Duration, percent: u32) -> Duration {
    took * (100 - percent) / percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_take_no_more_than_their_share() {
        for percent in 1..=100 {
            let took = Duration::from_micros(500);
            let share = took.as_secs_f64() / (took + rest(took, percent)).as_secs_f64();
            assert!((share * 100.0 - f64::from(percent)).abs() < 0.01, "{percent}: {share}");
        }
    }
}
