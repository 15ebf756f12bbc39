//! The program as it was built: what `build.rs` has found out.

use std::sync::LazyLock;

use evenkeel_report::Codes;
use evenkeel_scenario::provenance::Program;
use evenkeel_scenario::result::Engine;

/// This program, and the code with which it runs an engine.
pub fn of(engine: Engine) -> Program {
    let code = match engine {
        Engine::Lab => env!("EVENKEEL_CODE_LAB"),
        Engine::Sim => env!("EVENKEEL_CODE_SIM"),
    };
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Program {
        commit: known(env!("EVENKEEL_COMMIT")),
        clean: env!("EVENKEEL_CLEAN").parse().ok(),
        code: code.to_owned(),
    }
}

/// The digests that results are current with.
pub fn codes() -> Codes {
    Codes { lab: of(Engine::Lab).code, sim: of(Engine::Sim).code }
}

/// What `evenkeel --version` says: `0.1.0 (commit 18b6d2d01a2c)`.
pub static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), of(Engine::Sim).commit_in_words()));
