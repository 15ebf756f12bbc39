//! How many files this process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit as far as this process may without a privilege. Ports, namespaces and channels take a descriptor or
/// two each, and a process that no unit starts has 1024.
pub fn raise() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| match soft < hard {
        true => setrlimit(Resource::RLIMIT_NOFILE, hard, hard),
        false => Ok(()),
    });
    if let Err(errno) = raised {
        tracing::warn!("no more files can be open than before: {errno}");
    }
}
