//! `evenkeel export`.

use evenkeel_sim::export::{htsim, ns3};

use crate::cli::Export;
use crate::error::CliError;
use crate::exported::{self, Peer};

/// Writes a scenario as another simulator's input.
pub fn run(arguments: Export) -> Result<(), CliError> {
    let Export { scenario, only, ns3: to_ns3, htsim: to_htsim } = arguments;
    let peers = [(to_ns3, ns3 as Peer), (to_htsim, htsim as Peer)];
    let mut wanted = peers.into_iter().filter_map(|(file, peer)| Some((file?, peer)));
    wanted.try_for_each(|(file, peer)| exported::export(&scenario, &only, &file, peer))
}
