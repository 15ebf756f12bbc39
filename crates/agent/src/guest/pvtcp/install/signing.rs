//! Whether this kernel takes modules without a signature, and what to do if it does not.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Machine;

/// The variable of the firmware: four bytes of attributes, then 1 or 0.
const SECURE_BOOT: &str = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// `none [integrity] confidentiality`, the one that holds in brackets.
const LOCKDOWN: &str = "sys/kernel/security/lockdown";
const SIG_ENFORCE: &str = "sys/module/module/parameters/sig_enforce";
/// Certificates that dkms signs modules with: Debian's dkms and Fedora's, Ubuntu's.
const CERTIFICATES: [&str; 2] = ["var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub"];

/// What a kernel wants of modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signing {
    /// Why modules need a signature here; empty if they need none.
    pub reasons: Vec<&'static str>,
    /// The certificate of the key that dkms signs with, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
}

impl Signing {
    /// Asks the firmware and the kernel.
    pub(super) fn of(machine: &Machine) -> Self {
        let root = &machine.root;
        let mut reasons = Vec::new();
        if fs::read(root.join(SECURE_BOOT)).is_ok_and(|bytes| bytes.last() == Some(&1)) {
            reasons.push("Secure Boot is on");
        }
        if text(&root.join(LOCKDOWN)).is_some_and(|modes| modes.contains('[') && !modes.contains("[none]")) {
            reasons.push("the kernel is locked down");
        }
        if text(&root.join(SIG_ENFORCE)).is_some_and(|value| value.trim() == "Y") {
            reasons.push("the kernel enforces signatures of modules");
        }
        let certificate = CERTIFICATES.iter().map(|name| root.join(name)).find(|path| path.exists());
        Self { reasons, certificate }
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

impl fmt::Display for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reasons.is_empty() {
            return Ok(());
        }
        writeln!(f, "{}: the module has to be signed with a key that this machine trusts.", self.reasons.join(", "))?;
        match &self.certificate {
            Some(certificate) => writeln!(
                f,
                "dkms has signed it. Unless that key is enrolled already: `mokutil --import {}`, restart, choose \
                 \"Enroll MOK\" before the system starts, and type the password that mokutil asked for.",
                certificate.display()
            ),
            None => writeln!(
                f,
                "Nobody has signed it: install dkms and openssl and run this again (dkms makes a key and signs with \
                 it), or sign it with a key of yours (scripts/sign-file of the kernel's headers) and enroll that with \
                 `mokutil --import`."
            ),
        }
    }
}
