//! The extension as it was built: what `build.rs` has found out.

use std::sync::LazyLock;

use evenkeel_scenario::provenance::Program;

/// Digest of the sources that decide what a run gives.
pub(crate) const CODE: &str = env!("EVENKEEL_CODE_SIM");

/// The same and where they come from, as results have it.
pub(crate) static PROGRAM: LazyLock<Program> = LazyLock::new(|| Program {
    commit: Some(env!("EVENKEEL_COMMIT").to_owned()).filter(|commit| !commit.is_empty()),
    clean: env!("EVENKEEL_CLEAN").parse().ok(),
    code: CODE.to_owned(),
});
