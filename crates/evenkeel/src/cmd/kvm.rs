//! What the lab and the agent call the outcome of trying KVM.

use evenkeel_agent::doctor::Kvm;
use evenkeel_lab::host::vm::Accelerator;
use evenkeel_lab::kvm::{KvmVerdict, kvm_works};

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

/// Tries KVM, for the lab.
pub fn accelerator() -> Accelerator {
    let verdict = kvm_works();
    tracing::debug!(?verdict, "tried KVM");
    if verdict.is_usable() { Accelerator::Kvm } else { Accelerator::Tcg }
}
