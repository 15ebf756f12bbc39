//! The outcome of trying KVM, as the doctor and as the lab call it.

use evenkeel_agent::doctor::Kvm;
use evenkeel_lab::host::vm::Accelerator;
use evenkeel_lab::kvm::{KvmVerdict, kvm_works};

use crate::error::CliError;
use crate::exit::Exit;

/// Tries KVM, for the doctor.
pub fn examine() -> Kvm {
    match kvm_works() {
        KvmVerdict::Works => Kvm::Works,
        KvmVerdict::Absent => Kvm::Absent,
        KvmVerdict::NoQemu => Kvm::NotTried,
        KvmVerdict::Denied(why) => Kvm::Fails(format!("it cannot be opened ({why})")),
        KvmVerdict::Broken(why) => Kvm::Fails(why),
    }
}

/// Tries KVM, for the lab: how guest code is run. It is an error if KVM is required and does not work.
pub fn accelerator(required: bool) -> Result<Accelerator, CliError> {
    let verdict = kvm_works();
    tracing::debug!(?verdict, "tried KVM");
    choose(&verdict, required)
}

fn choose(verdict: &KvmVerdict, required: bool) -> Result<Accelerator, CliError> {
    match verdict.obstacle() {
        None => Ok(Accelerator::Kvm),
        Some(_) if !required => Ok(Accelerator::Tcg),
        Some(obstacle) => Err(CliError::new(Exit::Missing, format!("--require-kvm: {obstacle}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_requires_kvm_is_refused_in_one_line_where_it_does_not_work() {
        assert_eq!(choose(&KvmVerdict::Works, true).unwrap(), Accelerator::Kvm);
        for verdict in [
            KvmVerdict::Absent,
            KvmVerdict::Denied("Permission denied".into()),
            KvmVerdict::Broken("QEMU ended with signal 6".into()),
            KvmVerdict::NoQemu,
        ] {
            assert_eq!(choose(&verdict, false).unwrap(), Accelerator::Tcg, "{verdict:?}");
            let refusal = choose(&verdict, true).unwrap_err();
            assert_eq!(refusal.exit, Exit::Missing);
            assert!(refusal.what.starts_with("--require-kvm: ") && refusal.what.lines().count() == 1);
            assert_eq!(refusal.help, None, "it would be a second line");
        }
    }
}
