//! A table of settings: what is known of each key, and the texts that are made of it.

use toml::Value;

/// Where a key may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// In the table of the whole host, of single ports, and of a scenario's groups.
    #[default]
    Anywhere,
    /// In the table of the whole host and of a scenario's groups: it is one value for all ports.
    Host,
    /// In the table of the whole host alone: in a scenario it follows from the network.
    HostOnly,
    /// In the table of the whole host and of single ports: scenarios say it otherwise.
    Agent,
}

impl Scope {
    /// Whether a port may have its own value.
    pub fn is_of_ports(self) -> bool {
        matches!(self, Self::Anywhere | Self::Agent)
    }

    /// Whether scenarios have the key.
    pub fn is_of_scenarios(self) -> bool {
        matches!(self, Self::Anywhere | Self::Host)
    }
}

/// A setting, as configurations, schemas and documentation show it.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// How it is written.
    pub name: &'static str,
    /// What it is, in sentences.
    pub what: String,
    /// What is allowed; empty where the sentence says it.
    pub allowed: String,
    /// The default; none where it is left out.
    pub default: Option<Value>,
    /// Adds to what is allowed, as in `0 sends none`.
    pub note: Option<&'static str>,
    /// What holds where it is left out and has no default.
    pub left_out: Option<&'static str>,
    /// A value to show where there is no default.
    pub example: Option<Value>,
    /// Where it may stand.
    pub scope: Scope,
}

impl Key {
    pub(crate) fn new(name: &'static str, what: &[&str], allowed: String, default: Option<Value>) -> Self {
        let what = what.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        Self { name, what, allowed, default, note: None, left_out: None, example: None, scope: Scope::Anywhere }
    }

    pub(crate) fn note(self, note: &'static str) -> Self {
        Self { note: Some(note), ..self }
    }

    pub(crate) fn left_out(self, words: &'static str) -> Self {
        Self { left_out: Some(words), ..self }
    }

    pub(crate) fn example(self, value: impl Into<Value>) -> Self {
        Self { example: Some(value.into()), ..self }
    }

    pub(crate) fn scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// The unit that the name ends with.
    pub fn unit(&self) -> &'static str {
        const UNITS: [(&str, &str); 8] = [
            ("_us", "us"),
            ("_ms", "ms"),
            ("_percent", "percent"),
            ("_permille", "permille"),
            ("_segments", "segments"),
            ("_per_s", "packets/s"),
            ("_bytes", "bytes"),
            ("_mbit", "Mbit/s"),
        ];
        UNITS.iter().find(|(end, _)| self.name.ends_with(end)).map_or("", |(_, unit)| unit)
    }

    /// Whether it is on or off.
    pub fn is_switch(&self) -> bool {
        matches!(self.default, Some(Value::Boolean(_)))
    }

    /// The default without the quotation marks of a file: `on`, `enforce`, `4000`; empty where there is none.
    pub fn default_in_words(&self) -> String {
        match &self.default {
            Some(Value::Boolean(on)) => if *on { "on" } else { "off" }.to_owned(),
            Some(Value::String(word)) => word.clone(),
            other => other.as_ref().map(ToString::to_string).unwrap_or_default(),
        }
    }

    /// What is allowed with its unit, and what else is to be known: `1000-10000000 us; at least b1_us`.
    pub fn allowed_in_words(&self) -> String {
        let range = match self.unit() {
            "" => self.allowed.clone(),
            unit => format!("{} {unit}", self.allowed),
        };
        let notes = self.note.map(str::to_owned).into_iter();
        let left_out = self.left_out.map(|words| format!("left out: {words}"));
        std::iter::once(range)
            .filter(|range| !range.is_empty())
            .chain(notes)
            .chain(left_out)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// The sentence with what bounds alone do not say, for those who see the bounds beside it.
    pub fn explanation(&self) -> String {
        let what = sentence(&self.what);
        let what = what.trim_end_matches('.');
        let left_out = self.left_out.map(|words| format!("left out: {words}"));
        let notes: Vec<String> = self.note.map(str::to_owned).into_iter().chain(left_out).collect();
        if notes.is_empty() { format!("{what}.") } else { format!("{what}; {}.", notes.join("; ")) }
    }

    /// Sentence and bounds: a comment above the key.
    pub fn comment(&self) -> String {
        match self.allowed_in_words() {
            words if words.is_empty() => self.what.clone(),
            words => format!("{} {words}.", self.what),
        }
    }

    /// The key at its default, as in a file; in a comment where it is left out.
    fn line(&self) -> String {
        match (&self.default, &self.example) {
            (Some(value), _) => format!("{} = {value}\n", self.name),
            (None, Some(value)) => format!("# {} = {value}\n", self.name),
            (None, None) => String::new(),
        }
    }
}

/// A sentence that announces what is allowed (`Whether it acts:`), where that stands apart from it.
fn sentence(what: &str) -> String {
    what.strip_suffix(':').map_or_else(|| what.to_owned(), |what| format!("{what}."))
}

/// Settings that stand in one table of a file.
pub trait Table: Default {
    /// What they are for, in sentences.
    const WHAT: &'static [&'static str];

    /// All keys, in their order.
    fn keys() -> Vec<Key>;
}

/// Text on lines of at most 120 columns, each a comment.
pub(crate) fn comment(text: &str) -> String {
    const COLUMNS: usize = 120;
    let (mut lines, mut line) = (String::new(), String::from("#"));
    for word in text.split_whitespace() {
        if line.len() > 1 && line.len() + 1 + word.len() > COLUMNS {
            lines.push_str(&line);
            lines.push('\n');
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// A table as a commented file has it; without a name, the keys at the head of a file.
pub(crate) fn example<T: Table>(name: &str) -> String {
    let mut text = String::new();
    if !name.is_empty() {
        text += &comment(&T::WHAT.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "));
        text += &format!("[{name}]\n");
    }
    for key in T::keys() {
        text += &comment(&key.comment());
        text += &key.line();
    }
    text + "\n"
}

/// A table of keys for a page of documentation, in Markdown.
pub fn markdown(keys: &[Key]) -> String {
    let mut text = "| key | default | allowed | what it is |\n|---|---|---|---|\n".to_owned();
    for key in keys {
        let default = key.default.as_ref().map_or_else(|| "-".to_owned(), |value| format!("`{value}`"));
        let cells = [format!("`{}`", key.name), default, key.allowed_in_words(), sentence(&key.what)];
        text += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    text
}

/// Declares a table of settings: the structure with all of them, its default, and the keys with their explanations.
///
/// ```text
/// settings! {
///     /// What the table is for.
///     pub struct Settings, override Override;
///     /// What the key is.
///     key: Type = default, note "0 sends none";
/// }
/// ```
///
/// What follows the default are methods of [`Key`]: `note`, `left_out`, `example`, `scope`. The override has the same
/// keys, all of which may be left out.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident $(, override $override:ident)?;
        $(
            $(#[doc = $what:literal])+
            $key:ident: $type:ty = $default:expr $(, $say:ident $said:expr)*;
        )*
        $( table $table:ident: $table_type:ty; )*
        $( list $list:ident = $list_name:literal: $list_type:ty; )?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $(
                $(#[doc = $what])+
                #[serde(skip_serializing_if = "crate::value::Setting::is_left_out")]
                pub $key: $type,
            )*
            $(
                #[doc = concat!("The table `", stringify!($table), "`.")]
                pub $table: $table_type,
            )*
            $(
                #[doc = concat!("The tables `[[", $list_name, "]]`; of several that match, the last decides.")]
                #[serde(rename = $list_name)]
                pub $list: Vec<$list_type>,
            )?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($key: $default,)*
                    $($table: <$table_type>::default(),)*
                    $($list: Vec::new(),)?
                }
            }
        }

        impl $crate::table::Table for $name {
            const WHAT: &'static [&'static str] = &[$($about),+];

            fn keys() -> Vec<$crate::table::Key> {
                vec![
                    $(
                        $crate::table::Key::new(
                            stringify!($key),
                            &[$($what),+],
                            <$type as $crate::value::Setting>::allowed(),
                            toml::Value::try_from(&Self::default().$key).ok(),
                        )
                        $(.$say($said))*,
                    )*
                ]
            }
        }

        $crate::table::overridden! { [$($override)?] $name { $($key: $type = [$($what),+],)* } }
    };
}
pub(crate) use settings;

/// The structure whose keys may all be left out.
macro_rules! overridden {
    ([] $($rest:tt)*) => {};
    ([$override:ident] $name:ident { $($key:ident: $type:ty = [$($what:literal),+],)+ }) => {
        #[doc = concat!("Keys of [`", stringify!($name), "`], each of which may be left out.")]
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $override {
            $(
                $(#[doc = $what])+
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $key: $crate::value::Set<$type>,
            )+
        }

        impl $override {
            /// What holds where this is said over `base`.
            #[must_use]
            pub fn over(&self, base: $name) -> $name {
                $name { $($key: <$type as $crate::value::Setting>::over(&self.$key, base.$key),)+ }
            }

            /// The mode; off where nothing is said.
            pub fn mode(&self) -> $crate::value::Mode {
                self.mode.unwrap_or_default()
            }

            /// What holds in a scenario: what is not said is as the agent has it, without a mode it is off.
            #[must_use]
            pub fn in_scenario(&self) -> $name {
                self.over($name { mode: $crate::value::Mode::Off, ..$name::default() })
            }

            /// Names of the keys that are said.
            pub fn keys_set(&self) -> impl Iterator<Item = &'static str> {
                [$((stringify!($key), <$type as $crate::value::Setting>::is_set(&self.$key))),+]
                    .into_iter()
                    .filter_map(|(key, is_set)| is_set.then_some(key))
            }
        }
    };
}
pub(crate) use overridden;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_comments_are_wrapped() {
        let text = comment(&"words ".repeat(60));
        assert!(text.lines().count() == 4 && text.lines().all(|line| line.starts_with("# ") && line.len() <= 120));
    }
}
