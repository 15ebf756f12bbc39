//! The program as it was built: what `build.rs` has found out.

use std::sync::LazyLock;

use evenkeel_report::Codes;
use evenkeel_scenario::provenance::Program;
use evenkeel_scenario::result::Engine;
use evenkeel_scenario::{LoadedScenario, ScenarioError, fingerprint};

const SIM: &str = env!("EVENKEEL_CODE_SIM");
const LAB: &str = env!("EVENKEEL_CODE_LAB");
const PVTCP: &str = env!("EVENKEEL_CODE_PVTCP");
const AGENTS: &str = env!("EVENKEEL_CODE_AGENTS");
const CERA: &str = env!("EVENKEEL_CODE_CERA");
const VFLOOD: &str = env!("EVENKEEL_CODE_VFLOOD");

/// This program, and the code with which it runs a scenario: in the lab the engine's, and that of mechanisms that act.
///
/// # Errors
/// Those of [`fingerprint::acting`].
pub fn running(engine: Engine, loaded: &LoadedScenario) -> Result<Program, ScenarioError> {
    let parts = match engine {
        Engine::Sim => vec![SIM],
        Engine::Lab => {
            let acting = fingerprint::acting(loaded)?;
            let has_agents = acting.iter().any(|name| *name != "pvtcp");
            let acts = |name: &str| acting.contains(name);
            let parts = [
                (true, LAB),
                (acts("pvtcp"), PVTCP),
                (has_agents, AGENTS),
                (acts("cera"), CERA),
                (acts("vflood"), VFLOOD),
            ];
            parts.into_iter().filter_map(|(is_in, part)| is_in.then_some(part)).collect()
        }
    };
    Ok(with(&parts))
}

/// This program, and the simulator's code.
pub fn simulating() -> Program {
    with(&[SIM])
}

fn with(parts: &[&str]) -> Program {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Program {
        commit: known(env!("EVENKEEL_COMMIT")),
        clean: env!("EVENKEEL_CLEAN").parse().ok(),
        code: parts.join(Program::BETWEEN_PARTS),
    }
}

/// The digests that results are current with.
pub fn codes() -> Codes {
    Codes { lab: with(&[LAB, PVTCP, AGENTS, CERA, VFLOOD]).code, sim: simulating().code }
}

/// What `evenkeel --version` says: `0.1.0 (commit 18b6d2d01a2c)`.
pub static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), simulating().commit_in_words()));
