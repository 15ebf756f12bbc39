//! Classes of flows by their size.

/// Flows by their size, as the papers divide them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeClass {
    /// At most 100 KB.
    Small,
    /// Between.
    Medium,
    /// At least 10 MB.
    Large,
}

impl SizeClass {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// The class of a flow of `bytes` bytes.
    pub const fn of(bytes: u64) -> Self {
        match bytes {
            0..=100_000 => Self::Small,
            100_001..=9_999_999 => Self::Medium,
            _ => Self::Large,
        }
    }
}
