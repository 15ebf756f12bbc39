//! Live migration of a VM between two QEMUs.

use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Channel, Control, Nic, System, Vm, VmSpec, qemu};
use crate::error::LabError;
use crate::host::cores;
use crate::host::qmp::Qmp;

/// The rate at which a VM's memory is copied to its new place: the core that copies it has the driver domains' packets
/// to handle as well.
const MIGRATION_BYTES_PER_S: u64 = 64 << 20;
/// QEMU stops the VM when the rest can be copied within this time.
const MIGRATION_DOWNTIME_MS: u64 = 300;
const MIGRATION_LIMIT: Duration = Duration::from_secs(60);

/// What a live migration took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// How long the VM stood still, as QEMU says.
    pub downtime_ms: u64,
    /// From the order to the end.
    pub total_ms: u64,
    /// Memory that was copied.
    pub ram_bytes: u64,
    /// When it went on in its new place, CLOCK_MONOTONIC.
    pub done_ns: u64,
}

/// The QEMU that a VM is to move to; killed if it does not.
struct Moving(Option<Child>);

impl Drop for Moving {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Vm {
    /// Moves the running VM by live migration to another QEMU, with these network cards and channels. `place` is called
    /// as soon as that QEMU has its threads.
    pub fn migrate(
        &self,
        nics: Vec<Nic>,
        channels: Vec<Channel>,
        place: impl FnOnce(&Self, u32) -> Result<(), LabError>,
    ) -> Result<Migrated, LabError> {
        let System::Booted(image) = &self.spec.system else {
            return Err(self.failure("a network namespace cannot be moved"));
        };
        // No call may reach the guest meanwhile: the answer would go to a QEMU that is gone.
        let mut control = self.control.lock().unwrap_or_else(|p| p.into_inner());
        let stem = format!("{}-moved", self.spec.name);
        let address = format!("unix:{}", self.directory.join(format!("{stem}.ram")).display());
        let spec = VmSpec { nics, channels, ..self.spec.clone() };
        let mut target = Moving(Some(qemu::start(&spec, image, &self.directory, &stem, &["-incoming", &address])?));
        let mut qmp = Qmp::connect(&self.socket("qmp"), &self.spec.name)?;
        // When its monitor answers, it listens on all its sockets: the guest finds its host connected when it goes on.
        drop(Qmp::connect(&self.directory.join(format!("{stem}.qmp")), &stem)?);
        let stream = UnixStream::connect(self.directory.join(format!("{stem}.control")))
            .map_err(|e| LabError::io(format!("connecting to {stem}'s control port"), e))?;
        place(self, target.0.as_ref().map_or(0, Child::id))?;
        qmp.execute(
            "migrate-set-parameters",
            json!({ "max-bandwidth": MIGRATION_BYTES_PER_S, "downtime-limit": MIGRATION_DOWNTIME_MS }),
        )?;
        qmp.execute("migrate", json!({ "uri": address }))?;
        let end = Instant::now() + MIGRATION_LIMIT;
        let info = loop {
            let info = qmp.execute("query-migrate", json!({}))?;
            match info["status"].as_str() {
                Some("completed") => break info,
                Some("failed" | "cancelled") => return Err(self.failure(format!("it could not be moved: {info}"))),
                _ if Instant::now() > end => return Err(self.failure(format!("it was not moved in time: {info}"))),
                _ => self.interrupt.sleep(Duration::from_millis(5), || Ok(()))?,
            }
        };
        let done_ns = cores::monotonic_ns();
        if let Some(moved) = target.0.take() {
            let mut left = std::mem::replace(&mut *self.child.lock().unwrap_or_else(|p| p.into_inner()), moved);
            // The old QEMU has stopped the VM, but still holds the taps.
            let _ = left.kill();
            let _ = left.wait();
        }
        *self.stem.lock().unwrap_or_else(|p| p.into_inner()) = stem;
        let next_id = control.as_ref().map_or(0, |control| control.next_id);
        *control = Some(Control::new(stream, next_id)?);
        let ms = |key: &str| info[key].as_u64().unwrap_or_default();
        Ok(Migrated {
            downtime_ms: ms("downtime"),
            total_ms: ms("total-time"),
            ram_bytes: info["ram"]["transferred"].as_u64().unwrap_or_default(),
            done_ns,
        })
    }
}
