//! What a setting may be: a value, its bounds, and how both are written.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Unexpected;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The type of a setting.
pub trait Setting: Clone + Serialize {
    /// The same where it may be left out: what a port or a scenario says of it.
    type Set: Clone + Default;

    /// What holds where `set` is said over `base`.
    fn over(set: &Self::Set, base: Self) -> Self;

    /// Whether anything is said.
    fn is_set(set: &Self::Set) -> bool;

    /// Whether the value is that it is left out.
    fn is_left_out(&self) -> bool {
        false
    }

    /// What is allowed, in words: `0-64`, `true or false`.
    fn allowed() -> String;
}

/// A setting that may be left out where something else is said of it.
pub type Set<T> = <T as Setting>::Set;

/// Implements [`Setting`] for types that are always there.
macro_rules! always {
    ($type:ty, $allowed:expr $(, for $($generic:tt)+)?) => {
        impl $(<$($generic)+>)? $crate::value::Setting for $type {
            type Set = Option<Self>;

            fn over(set: &Option<Self>, base: Self) -> Self {
                set.clone().unwrap_or(base)
            }

            fn is_set(set: &Option<Self>) -> bool {
                set.is_some()
            }

            fn allowed() -> String {
                $allowed
            }
        }
    };
}
pub(crate) use always;

impl<T: Setting> Setting for Option<T> {
    type Set = Self;

    fn over(set: &Self, base: Self) -> Self {
        set.clone().or(base)
    }

    fn is_set(set: &Self) -> bool {
        set.is_some()
    }

    fn is_left_out(&self) -> bool {
        self.is_none()
    }

    fn allowed() -> String {
        T::allowed()
    }
}

always!(bool, "true or false".to_owned());
always!(String, String::new());
always!(std::path::PathBuf, String::new());
always!(std::net::SocketAddr, String::new());
always!(Vec<T>, String::new(), for T: Clone + Serialize);
always!(Bounded<MIN, MAX>, format!("{MIN}-{MAX}"), for const MIN: u32, const MAX: u32);

/// A whole number that is refused outside `MIN..=MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    /// A value known to be within the bounds; anything else does not compile where it is used for a constant.
    pub const fn new(value: u32) -> Self {
        assert!(value >= MIN && value <= MAX, "out of bounds");
        Self(value)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MIN: u32, const MAX: u32> Serialize for Bounded<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> serde::de::Visitor<'_> for Visitor<MIN, MAX> {
            type Value = Bounded<MIN, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {MIN} to {MAX}")
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
                let fits = u32::try_from(value).ok().filter(|v| (MIN..=MAX).contains(v));
                fits.map(Bounded).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
                let fits = u32::try_from(value).ok().filter(|v| (MIN..=MAX).contains(v));
                fits.map(Bounded).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
            }
        }
        deserializer.deserialize_u32(Visitor::<MIN, MAX>)
    }
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Bounded<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Bounded{MIN}To{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// An enum whose variants are words in configurations and scenarios. Its documentation is what [`Setting::allowed`]
/// says of each.
macro_rules! words {
    (
        $(#[$outer:meta])*
        pub enum $name:ident {
            $( #[doc = $what:literal] $(#[$inner:meta])* $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $( #[doc = $what] $(#[$inner])* #[serde(rename = $word)] $variant, )+
        }

        impl $name {
            /// All words.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// As it is written.
            pub const fn word(self) -> &'static str {
                match self {
                    $( Self::$variant => $word, )+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err(format!("{} is allowed", Self::WORDS.join(", "))),
                }
            }
        }

        $crate::value::always!($name, $crate::value::listed(&[$(($word, $what)),+]));
    };
}
pub(crate) use words;

/// `off (packets pass unread) or enforce (it acts)`.
pub(crate) fn listed(words: &[(&str, &str)]) -> String {
    let explained = |(word, what): &(&str, &str)| {
        let what = what.trim().trim_end_matches('.');
        let mut letters = what.chars();
        // A sentence begins with a capital letter; a name or an abbreviation keeps its own.
        let name = what.chars().nth(1).is_some_and(|second| !second.is_lowercase());
        let what: String = match letters.next() {
            Some(first) if !name => first.to_lowercase().chain(letters).collect(),
            _ => what.to_owned(),
        };
        format!("{word} ({what})")
    };
    match words {
        [] => String::new(),
        [only] => explained(only),
        [first @ .., last] => {
            format!("{} or {}", first.iter().map(explained).collect::<Vec<_>>().join(", "), explained(last))
        }
    }
}

words! {
    /// What a mechanism may do.
    #[derive(Default)]
    pub enum Mode {
        /// Packets pass unread.
        #[default]
        Off = "off",
        /// Count what would be done, change no packet of the VM's.
        Observe = "observe",
        /// Act.
        Enforce = "enforce",
    }
}
