//! A trial of a mechanism on traffic that is there anyway: which mode holds when, what was timed, what that says. No
//! clock and no I/O: time, exchanges and a seed come in, and a page comes out.

mod bootstrap;
mod html;
mod judge;
mod samples;
mod slots;
#[cfg(test)]
mod tests;
mod text;

use serde::Serialize;

pub use bootstrap::Estimate;
pub use judge::{Compared, Judgement, LEAST_CHANGE, Row, Verdict, judge};
pub use samples::{CLASSES, Direction, Exchange, LeftOut, Samples};
pub use slots::{Slot, slots, usual_slot};

/// A trial, as its report has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// Which mechanism was tried.
    pub mechanism: String,
    /// On which ports.
    pub ports: Vec<String>,
    /// When it began, for people.
    pub started: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The mean length of its slots, in seconds.
    pub slot_seconds: f64,
    /// What slots and intervals were drawn from.
    pub seed: u64,
    /// The command.
    pub command: String,
    /// The program's version.
    pub version: String,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// What it has shown.
    pub judgement: Judgement,
}

impl Trial {
    /// The verdict in a sentence.
    pub fn sentence(&self) -> String {
        let mechanism = &self.mechanism;
        let percent = |ratio: f64| format!("{:.0} %", 100.0 * (ratio - 1.0).abs());
        let Some(e) = self.judgement.primary else {
            return format!("Too little traffic to say whether {mechanism} makes a difference.");
        };
        let interval = format!("{:.2} times as long, 95 % interval {:.2} to {:.2}", e.value, e.low, e.high);
        match self.judgement.verdict {
            Verdict::Gain => {
                format!("{mechanism} helps: exchanges take {} less time with it ({interval}).", percent(e.value))
            }
            Verdict::Harm => {
                format!("{mechanism} harms: exchanges take {} more time with it ({interval}).", percent(e.value))
            }
            Verdict::NoDifference | Verdict::TooLittle => {
                format!("{mechanism} makes no difference that this trial shows ({interval}).")
            }
        }
    }

    /// The report: one HTML file without scripts or outside requests.
    pub fn html(&self) -> String {
        html::render(self)
    }

    /// The same for a terminal.
    pub fn text(&self) -> String {
        text::render(self)
    }
}

/// Seconds in a unit that suits them.
fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.01 => format!("{:.1} ms", s * 1e3),
        s if s >= 0.001 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.0} us", s * 1e6),
    }
}

/// A change and its interval: a ratio, or a difference with its sign.
fn change(change: Option<&Estimate>, is_ratio: bool) -> String {
    match change {
        None => "-".to_owned(),
        Some(e) if is_ratio => format!("{:.2} ({:.2} to {:.2})", e.value, e.low, e.high),
        Some(e) => format!("{:+.1} ({:+.1} to {:+.1})", e.value, e.low, e.high),
    }
}

/// What is compared beside times by size: what it is called, the figures as text, and whether the change is a ratio.
fn others(judgement: &Judgement) -> Vec<[String; 4]> {
    let row = |name: &str, compared: &Option<Compared>, shown: fn(f64) -> String, is_ratio: bool| {
        let compared = compared.as_ref()?;
        let change = change(compared.change.as_ref(), is_ratio);
        Some([name.to_owned(), shown(compared.observe), shown(compared.enforce), change])
    };
    let number = |value: f64| format!("{value:.1}");
    [
        row("handshake, geometric mean", &judgement.handshakes, time, true),
        row("segments sent again, per 1000 exchanges", &judgement.again, number, false),
        row("sent again by a timer, per 1000 exchanges", &judgement.timeouts, number, false),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What does not count, in a sentence.
fn left_out(left: &LeftOut) -> String {
    let LeftOut { between, straddled, cut } = left;
    format!(
        "Left out: {between} exchanges that began while a mode changed, settled or ran off; {} in observe and {} in \
         enforce that ended in another slot; {} and {} whose connection ended first.",
        straddled[0], straddled[1], cut[0], cut[1]
    )
}
