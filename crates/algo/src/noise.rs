//! Random and mutated packets, the same in every run of a seed.

/// splitmix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.any() % end as u64) as usize
    }
}

/// A packet that resembles one of the seeds: whole, with bytes of its headers changed, cut, lengthened, or, one in
/// eight, nothing but noise. Never shorter than `least` bytes.
pub fn packet(seeds: &[Vec<u8>], least: usize, random: &mut Random) -> Vec<u8> {
    let mut frame = seeds[random.below(seeds.len())].clone();
    for _ in 0..random.below(4) {
        // Headers, mostly: what follows them is not read.
        let at = random.below(frame.len().min(100));
        match random.below(3) {
            0 => frame[at] ^= 1 << random.below(8),
            1 => frame[at] = random.any() as u8,
            _ => frame[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        }
    }
    match random.below(8) {
        0 => frame.truncate(least + random.below(frame.len() - least + 1)),
        1 => frame.extend((0..random.below(64)).map(|_| random.any() as u8)),
        2 => frame = (0..least + random.below(200)).map(|_| random.any() as u8).collect(),
        _ => {}
    }
    frame
}

/// How many packets to make: `usual`, or what the environment says in `EVENKEEL_NOISE`.
pub fn count(usual: u64) -> u64 {
    match std::env::var("EVENKEEL_NOISE") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("EVENKEEL_NOISE is a number of packets, not {text:?}")),
        Err(_) => usual,
    }
}
