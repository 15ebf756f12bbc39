//! Makes the lab's images and says where they are, for work on that part alone:
//! `cargo run -p evenkeel-lab --example prepare -- EVENKEEL_BINARY [SERIES...]`.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use evenkeel_lab::prepare::{KernelSeries, prepare};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let binary = args.next().ok_or("usage: prepare EVENKEEL_BINARY [SERIES...]")?;
    let mut series = args.map(|name| name.parse()).collect::<Result<Vec<KernelSeries>, _>>()?;
    if series.is_empty() {
        series = KernelSeries::ALL.to_vec();
    }
    let start = Instant::now();
    let images = prepare(&series, Path::new(&binary), &|line| {
        eprintln!("{:6.1} s  {line}", start.elapsed().as_secs_f64());
    })?;
    for image in images {
        println!("{} {} {} {}", image.series, image.release, image.vmlinuz.display(), image.initramfs.display());
    }
    eprintln!("{:6.1} s  done", start.elapsed().as_secs_f64());
    Ok(())
}
