//! Forgets what the tables know of ports that are gone: their indexes may become other devices'.

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::super::error::DatapathError;
use super::super::intf;
use super::super::map::BATCH;
use super::{Datapath, PROGRAMS};
use crate::common::bytes::{as_bytes, from_bytes};

impl Datapath {
    /// Whether tables still know ports that are gone.
    pub fn knows_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Forgets ports that are gone, all with one look through the tables.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn forget_gone(&mut self) -> Result<(), DatapathError> {
        if self.knows_gone() {
            let gone = &self.gone;
            self.forget(&mut |ifindex| gone.contains(&ifindex))?;
            self.gone = BTreeSet::new();
        }
        Ok(())
    }

    /// Forgets what an agent before this one knew of devices that have no programs any more.
    pub(super) fn forget_unattached(&self) -> Result<(), DatapathError> {
        let mut known = BTreeMap::new();
        let mut is_gone = |ifindex| {
            *known.entry(ifindex).or_insert_with(|| PROGRAMS.iter().any(|program| !self.is_there(ifindex, *program)))
        };
        self.forget(&mut is_gone)
    }

    fn forget(&self, is_gone: &mut dyn FnMut(u32) -> bool) -> Result<(), DatapathError> {
        forget_in(&self.flows, |key: &intf::ek_flow_key| is_gone(key.ifindex))?;
        forget_in(&self.handshakes, |key: &intf::ek_flow_key| is_gone(key.ifindex))?;
        forget_in(&self.trains, |key: &intf::ek_train_key| is_gone(key.flow.ifindex))?;
        forget_in(&self.exchanges.map, |key: &intf::ek_flow_key| is_gone(key.ifindex))?;
        forget_in(&self.snoops, |key: &intf::ek_flow_key| is_gone(key.ifindex))
    }
}

fn forget_in<K: Copy>(map: &MapHandle, mut is_gone: impl FnMut(&K) -> bool) -> Result<(), DatapathError> {
    let entries = map
        .lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
        .map_err(|error| DatapathError::bpf("cannot look for connections of ports that are gone", &error))?;
    let keys: Vec<K> = entries.filter_map(|(key, _)| from_bytes(&key)).filter(|key| is_gone(key)).collect();
    for key in keys {
        // Replaced or closed meanwhile is as good as removed.
        let _ = map.delete(as_bytes(&key));
    }
    Ok(())
}
