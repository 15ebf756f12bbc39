//! Entries of maps, as the structures that the programs have in them.

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::error::DatapathError;
use crate::common::bytes::{as_bytes, from_bytes};

/// Entries that are read with one call.
pub(super) const BATCH: u32 = 1024;

/// An entry's bytes.
pub(super) fn lookup_bytes(map: &MapHandle, key: &[u8]) -> Result<Option<Vec<u8>>, DatapathError> {
    map.lookup(key, MapFlags::ANY).map_err(|error| DatapathError::bpf("cannot read a map", &error))
}

/// An entry.
pub(super) fn lookup<K: Copy, V: Copy>(map: &MapHandle, key: &K) -> Result<Option<V>, DatapathError> {
    Ok(lookup_bytes(map, as_bytes(key))?.as_deref().and_then(from_bytes))
}

/// All entries.
pub(super) fn read_all<K: Copy, V: Copy>(map: &MapHandle, failure: &str) -> Result<Vec<(K, V)>, DatapathError> {
    let entries =
        map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(|error| DatapathError::bpf(failure, &error))?;
    Ok(entries.filter_map(|(key, value)| Some((from_bytes(&key)?, from_bytes(&value)?))).collect())
}

/// A port's state begins anew.
pub(super) fn clear<V: Copy>(map: &MapHandle, slot: u32, fresh: &V) -> Result<(), DatapathError> {
    let failed = |error| DatapathError::bpf("cannot clear a port's state", &error);
    map.update(&slot.to_ne_bytes(), as_bytes(fresh), MapFlags::ANY).map_err(failed)
}
