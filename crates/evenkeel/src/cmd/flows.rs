//! `evenkeel flows`.

use std::fmt::Write as _;

use evenkeel_agent::host::{Ask, Client, Ecn, ExplainedFlow, Flow};
use serde_json::json;

use crate::cli;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

/// Asks the agent.
pub fn run(arguments: &cli::Flows) -> Result<(), CliError> {
    let ask = Ask::Flows { tuple: arguments.explain, limit: arguments.limit };
    let (flows, total) = Client::connect(&arguments.agent.socket)?.flows(ask)?;
    if let (Some(tuple), true) = (arguments.explain, flows.is_empty()) {
        let error = CliError::new(Exit::Failed, format!("the agent knows no connection {tuple}"));
        return Err(error.help(
            "`evenkeel flows` lists those it knows: it sees connections whose handshake passed while it was there",
        ));
    }
    if arguments.agent.json {
        return output::print_json(&json!({ "total": total, "flows": flows }));
    }
    let flows: Vec<ExplainedFlow> = output::on_one_line(&flows)?;
    let text = match arguments.explain {
        Some(_) => flows.iter().map(explained).collect(),
        None => table(&flows, total),
    };
    output::print(&text)
}

fn table(flows: &[ExplainedFlow], total: u64) -> String {
    let mut text = format!("{}\n", heading());
    for ExplainedFlow { flow, .. } in flows {
        text.push_str(&row(flow));
        text.push('\n');
    }
    let shown = flows.len() as u64;
    // Writing to a String cannot fail.
    let _ = if shown == total {
        writeln!(text, "{total} connections")
    } else {
        writeln!(text, "{shown} of {total} connections")
    };
    text
}

fn heading() -> String {
    format!(
        "{:<44} {:<9} {:<12} {:<16} {:>9} {:>9} {:>6} {:>9} {:<9} {:>9} {:>5} {:<6}",
        "connection (VM first)",
        "VLAN",
        "port",
        "domain",
        "from VM",
        "to VM",
        "idle",
        "window",
        "set by",
        "limited",
        "alpha",
        "ECN"
    )
}

fn row(flow: &Flow) -> String {
    format!(
        "{:<44} {:<9} {:<12} {:<16} {:>9} {:>9} {:>6} {:>9} {:<9} {:>9} {:>5} {:<6}",
        flow.tuple,
        flow.network(),
        flow.port,
        flow.domain.as_deref().unwrap_or("-"),
        amount(flow.bytes_from_vm),
        amount(flow.bytes_to_vm),
        idle(flow.idle_ms),
        amount(u64::from(flow.window.set_bytes)),
        flow.window.set_by,
        flow.window.limited_acks,
        alpha(flow),
        ecn(flow.ecn)
    )
}

fn explained(flow: &ExplainedFlow) -> String {
    let mut text = format!("{}\n{}\n", heading(), row(&flow.flow));
    for line in &flow.words {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// DCTCP's alpha in permille, if it is known.
pub fn alpha(flow: &Flow) -> String {
    flow.alpha_permille.map_or_else(|| "-".to_owned(), |alpha| alpha.to_string())
}

fn ecn(ecn: Ecn) -> &'static str {
    match ecn {
        Ecn::Guests => "guests",
        Ecn::Hosts => "hosts",
        Ecn::None => "none",
    }
}

fn idle(milliseconds: u64) -> String {
    match milliseconds {
        0..10_000 => format!("{:.1}s", milliseconds as f64 / 1e3),
        10_000..600_000 => format!("{}s", milliseconds / 1000),
        _ => format!("{}m", milliseconds / 60_000),
    }
}

/// Bytes with a decimal prefix.
pub fn amount(bytes: u64) -> String {
    let mut value = bytes as f64;
    if bytes < 1000 {
        return bytes.to_string();
    }
    let mut prefixes = ["", "k", "M", "G", "T", "P"].iter();
    let mut prefix = prefixes.next();
    while value >= 999.5 {
        value /= 1000.0;
        prefix = prefixes.next().or(prefix);
    }
    let prefix = prefix.copied().unwrap_or_default();
    if value < 9.95 { format!("{value:.1}{prefix}") } else { format!("{value:.0}{prefix}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits_at_most() {
        let texts = [0, 999, 1000, 9949, 9951, 65_535, 999_499, 999_600, 12_000_000_000].map(amount);
        assert_eq!(texts, ["0", "999", "1.0k", "9.9k", "10k", "66k", "999k", "1.0M", "12G"]);
    }

    #[test]
    fn idleness_is_short() {
        assert_eq!([300, 12_000, 700_000].map(idle), ["0.3s", "12s", "11m"]);
    }
}
