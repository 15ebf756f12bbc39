//! What QEMU knows of the rings between it and the guest's network cards.

use serde_json::json;

use super::Vm;
use crate::error::LabError;
use crate::host::qmp::Qmp;

/// The rings of a network card with one queue: for what the guest receives, and for what it sends.
const RINGS: [(u32, &str); 2] = [(0, "receives"), (1, "sends")];

impl Vm {
    /// The state of each ring, a line each. A QEMU that cannot tell (before 7.2) is an error.
    pub fn rings(&self) -> Result<String, LabError> {
        let mut qmp = Qmp::connect(&self.socket("qmp"), &self.spec.name)?;
        let devices = qmp.execute("x-query-virtio", json!({}))?;
        let paths = devices.as_array().into_iter().flatten().filter(|device| device["name"] == "virtio-net");
        let mut text = String::new();
        for path in paths.filter_map(|device| device["path"].as_str()) {
            for (queue, what) in RINGS {
                let state = qmp.execute("x-query-virtio-queue-status", json!({ "path": path, "queue": queue }))?;
                text += &format!("{path} {what}: {state}\n");
            }
        }
        Ok(text)
    }
}
