//! `evenkeel guest pvtcp`.

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
    let mut settings = Settings::default();
    for (name, value) in &arguments.parameters.given {
        settings.set(name, value)?;
    }
    Ok(settings)
}
