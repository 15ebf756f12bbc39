//! A mechanism's settings have the same bounds in scenarios and in the agent's configuration.

use std::path::Path;

use evenkeel_scenario::schema::SCHEMA;
use evenkeel_settings::host::{Config, MECHANISMS};
use serde_json::Value;

/// The keys that only scenarios have: in reality guests say whether they have a client, and the channel sets how long
/// words take.
const ONLY_IN_SCENARIOS: [(&str, &str); 3] = [("vflood", "clients"), ("cera", "clients"), ("cera", "client_delay_us")];

/// Why the agent refuses a key's value; None if it takes it.
fn refusal(mechanism: &str, key: &str, value: &Value) -> Option<String> {
    let text = format!("[{mechanism}]\n{key} = {value}\n");
    Config::parse(&text, Path::new("host.toml")).err().map(|error| error.to_string())
}

/// Keys of a scenario's table that have bounds.
fn bounded(mechanism: &str) -> Vec<(&'static String, &'static Value, &'static Value)> {
    let group = &SCHEMA["properties"]["vms"]["additionalProperties"]["properties"];
    let keys = group[mechanism]["properties"].as_object().expect("a table of keys");
    keys.iter().filter_map(|(key, schema)| Some((key, schema.get("minimum")?, schema.get("maximum")?))).collect()
}

#[test]
fn the_agent_and_scenarios_agree_on_bounds() {
    for (mechanism, _) in MECHANISMS {
        let keys = bounded(mechanism);
        assert!(!keys.is_empty(), "{mechanism}: no key with bounds");
        for (key, least, most) in keys {
            let beyond = Value::from(most.as_f64().expect("a number") as u64 + 1);
            let why =
                refusal(mechanism, key, &beyond).unwrap_or_else(|| panic!("{mechanism}.{key} = {beyond} is taken"));
            let wanted = match ONLY_IN_SCENARIOS.contains(&(mechanism, key)) {
                true => "unknown field".to_owned(),
                false => format!("from {least} to {most}"),
            };
            assert!(why.contains(&wanted), "{mechanism}.{key}: {least} to {most}, but {why}");
        }
    }
}
