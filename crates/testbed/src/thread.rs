//! Threads that stand for VMs' virtual CPUs.

use std::sync::LazyLock;
use std::sync::mpsc::channel;
use std::thread::Builder;

use nix::unistd::gettid;

/// The number of this thread, which runs.
pub fn own() -> u32 {
    gettid().as_raw().unsigned_abs()
}

/// The number of a thread that never runs, as long as this process lives. To a host it is the virtual CPU of all VMs
/// here, so that everything is acknowledged early that may be.
pub fn asleep() -> u32 {
    static ASLEEP: LazyLock<u32> = LazyLock::new(|| {
        let (tell, told) = channel();
        let sleep = move || {
            tell.send(own()).expect("somebody waits for it");
            loop {
                std::thread::park();
            }
        };
        // The host recognizes a virtual CPU by this name.
        Builder::new().name("vcpu".to_owned()).spawn(sleep).expect("there is room for a thread");
        told.recv().expect("it says its number first")
    });
    *ASLEEP
}
