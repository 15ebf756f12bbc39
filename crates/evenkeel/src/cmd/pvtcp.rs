//! `evenkeel guest pvtcp`.

use clap::ValueEnum;
use evenkeel_agent::guest::pvtcp::{self, Loaded, Settings};
use serde_json::json;

use crate::cli::{Pvtcp, PvtcpLoad};
use crate::error::CliError;
use crate::output;

/// Loads, shows or unloads the module.
pub fn run(arguments: Pvtcp) -> Result<(), CliError> {
    match arguments {
        Pvtcp::Load(arguments) => load(&arguments),
        Pvtcp::Status { json } => {
            let status = pvtcp::status()?;
            if json { output::print_json(&status) } else { output::print(&status.to_string()) }
        }
        Pvtcp::Unload { json } => {
            let was_loaded = pvtcp::unload()?;
            if json {
                return output::print_json(&json!({ "was_loaded": was_loaded }));
            }
            output::print(if was_loaded { "unloaded; TCP is the kernel's own again\n" } else { "it was not loaded\n" })
        }
    }
}

fn load(arguments: &PvtcpLoad) -> Result<(), CliError> {
    let loaded = pvtcp::load(arguments.module.as_deref(), &settings(arguments)?)?;
    if arguments.json {
        return output::print_json(&loaded);
    }
    let text = match loaded {
        Loaded::Loaded => "loaded\n".to_owned(),
        Loaded::Changed { changed } => format!("it was loaded; changed {}\n", changed.join(", ")),
        Loaded::Unchanged => "it was loaded with these settings already\n".to_owned(),
    };
    output::print(&text)
}

fn settings(arguments: &PvtcpLoad) -> Result<Settings, CliError> {
    fn word<T: ValueEnum>(value: Option<T>) -> Option<String> {
        value.and_then(|v| Some(v.to_possible_value()?.get_name().to_owned()))
    }
    let values = [
        ("mode", word(arguments.mode)),
        ("hold_rto", word(arguments.hold_rto)),
        ("hold_tlp", word(arguments.hold_tlp)),
        ("hold_reo", word(arguments.hold_reo)),
        ("filter_rtt", word(arguments.filter_rtt)),
        ("jit_segments", arguments.jit_segments.clone()),
        ("late_us", arguments.late_us.clone()),
        ("hold_min_us", arguments.hold_min_us.clone()),
        ("hold_max_us", arguments.hold_max_us.clone()),
    ];
    let mut settings = Settings::default();
    for (name, value) in values {
        if let Some(value) = value {
            settings.set(name, &value)?;
        }
    }
    Ok(settings)
}
