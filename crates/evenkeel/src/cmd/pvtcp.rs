//! `evenkeel guest pvtcp`.

use evenkeel_agent::guest::pvtcp::{self, Loaded, Machine, Settings, Sources};
use evenkeel_lab::prepare::{MODULE_FILES, ModuleSources};
use serde_json::json;

use crate::cli::{Pvtcp, PvtcpLoad};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

/// Installs, loads, shows, unloads or removes the module.
pub fn run(arguments: Pvtcp) -> Result<(), CliError> {
    match arguments {
        Pvtcp::Install(arguments) => install(arguments.json),
        Pvtcp::Remove { json } => remove(json),
        Pvtcp::Load(arguments) => load(&arguments),
        Pvtcp::Status { json, openmetrics } => {
            let status = pvtcp::status()?;
            if openmetrics {
                let text = status.openmetrics();
                let why = |error| CliError::new(Exit::Failed, format!("cannot write OpenMetrics: {error}"));
                return output::print_as_it_is(&text.map_err(why)?);
            }
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

fn sources() -> Result<Sources, CliError> {
    let ModuleSources { name, version, .. } = ModuleSources::embedded()?;
    Ok(Sources { name, version, files: MODULE_FILES })
}

fn install(json: bool) -> Result<(), CliError> {
    let installed = pvtcp::install(&Machine::this()?, &sources()?)?;
    if json { output::print_json(&installed) } else { output::print(&installed.to_string()) }
}

fn remove(json: bool) -> Result<(), CliError> {
    let was_loaded = pvtcp::unload()?;
    let removed = pvtcp::remove(&Machine::this()?, &sources()?.name)?;
    if json {
        return output::print_json(&json!({ "was_loaded": was_loaded, "removed": removed }));
    }
    let mut text = if was_loaded { "unloaded; TCP is the kernel's own again\n" } else { "" }.to_owned();
    for folder in &removed {
        text.push_str(&format!("removed {} and the module that was built of it\n", folder.display()));
    }
    output::print(if text.is_empty() { "nothing was there to remove\n" } else { &text })
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
