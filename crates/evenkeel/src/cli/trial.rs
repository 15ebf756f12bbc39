//! `evenkeel trial` and its arguments. The comments are what `--help` prints.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use evenkeel_quote::quoted;
use evenkeel_settings::host::Mechanism;

use super::Agent;

/// The longest trial.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);
/// The shortest slot.
const SHORTEST_SLOT: Duration = Duration::from_millis(500);

/// Try a mechanism on the traffic of ports, and report whether it helps, harms or makes no difference.
///
/// Has the host agent switch the mechanism between observe and enforce on these ports, in pairs of slots of random
/// length and in random order, and measures in both how long exchanges on connections take. Prints the verdict and
/// writes an HTML report. The configuration file is not touched. When the trial ends, also by Ctrl-C or a kill, the
/// ports go back to what is configured: the agent does that by itself when it hears nothing for some seconds. A trial
/// changes what enforce changes, so use it only where that is acceptable.
#[derive(Debug, Args)]
pub struct Trial {
    /// The ports, as in `evenkeel status`.
    #[arg(required = true, value_name = "PORT")]
    pub ports: Vec<String>,
    /// The mechanism.
    #[arg(long, value_name = "NAME", value_parser = mechanism, default_value = "vflood")]
    pub mechanism: Mechanism,
    /// Length of the trial: 90s, 10m, 1h. A longer trial shows smaller differences.
    #[arg(long = "for", value_name = "TIME", value_parser = trial_time, default_value = "1h")]
    pub time: Duration,
    /// Mean length of a slot [default: a fortieth of the time, between 1s and 60s].
    #[arg(long, value_name = "TIME", value_parser = slot_time)]
    pub slot: Option<Duration>,
    /// Seed for slots and intervals [default: from the clock].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Path of the report.
    #[arg(long, value_name = "FILE", default_value = "trial.html")]
    pub report: PathBuf,
    /// The agent.
    #[command(flatten)]
    pub agent: Agent,
    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}

fn mechanism(text: &str) -> Result<Mechanism, String> {
    let all = Mechanism::ALL;
    let named = all.iter().find(|mechanism| mechanism.word() == text);
    named.copied().ok_or_else(|| all.iter().map(|m| m.word()).collect::<Vec<_>>().join(", ") + " is allowed")
}

/// A whole number of seconds, minutes or hours.
fn time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" | "" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).map(Duration::from_secs)
}

fn trial_time(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_secs(10)..=LONGEST;
    let time = time(text).filter(|time| allowed.contains(time));
    time.ok_or_else(|| format!("{} is not a length for a trial: write 10s to 7d, e.g. 90s, 10m, 1h", quoted(text)))
}

fn slot_time(text: &str) -> Result<Duration, String> {
    let milliseconds = text.strip_suffix("ms").and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    let time = milliseconds.or_else(|| time(text)).filter(|time| (SHORTEST_SLOT..=LONGEST).contains(time));
    time.ok_or_else(|| format!("{} is not a length for a slot: write 500ms or more, e.g. 800ms, 5s, 1m", quoted(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_what_people_write() {
        let seconds = |text| trial_time(text).map(|time| time.as_secs());
        assert_eq!(["90s", "10m", "1h", "30", "2d"].map(|text| seconds(text).unwrap()), [90, 600, 3600, 30, 172_800]);
        for text in ["", "h", "9s", "8d", "1w", "-5m", "1.5h", "18446744073709551615h"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(slot_time("800ms"), Ok(Duration::from_millis(800)));
        assert!(slot_time("100ms").is_err() && slot_time("ms").is_err());
    }
}
