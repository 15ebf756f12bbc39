//! Text from outside (names in files, names of devices and paths, what other programs say), as messages, logs, tables
//! and reports show it.
//!
//! What would break a line, steer a terminal, or make text read as something else is written as its escape: `\n`,
//! `\u{1b}`, `\u{202e}`. Everything else stays as it is, in any script.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// Text on one line, whatever is in it. Widths and alignments of a format are kept to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown<'a>(Cow<'a, str>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<Shown<'_>> for String {
    fn from(shown: Shown<'_>) -> Self {
        shown.0.into_owned()
    }
}

/// Text on one line.
pub fn shown(text: &str) -> Shown<'_> {
    Shown(escape(text, is_harmful))
}

/// A path on one line.
pub fn path(path: &Path) -> Shown<'_> {
    match path.to_string_lossy() {
        Cow::Borrowed(text) => shown(text),
        Cow::Owned(text) => Shown(escape(&text, is_harmful).into_owned().into()),
    }
}

/// Text between backticks, on one line. Two texts that differ are shown differently.
pub fn quoted(text: &str) -> String {
    format!("`{}`", escape(text, |c| is_harmful(c) || matches!(c, '`' | '\\')))
}

/// Text of several lines: line breaks and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_harmful(c) && !matches!(c, '\n' | '\t'))
}

/// Control characters; Unicode's own line breaks; characters that change the direction of writing; the byte order mark,
/// which is invisible.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '`' if is_escaped(c) => out.push_str("\\`"),
            c if is_escaped(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_harmless_stays() {
        let text = "na\u{ef}ve \u{928}\u{92e}\u{938}\u{94d}\u{924}\u{947} e\u{301} \u{1f600} C:\\ \"x\" 'y'";
        assert_eq!(shown(text).to_string(), text);
        assert_eq!(quoted("sender"), "`sender`");
    }

    #[test]
    fn what_is_harmful_is_written_as_its_escape() {
        assert_eq!(shown("s\nder\r\t\u{1b}[31m").to_string(), "s\\nder\\r\\t\\u{1b}[31m");
        assert_eq!(shown("a\u{202e}b\u{2028}c\u{85}").to_string(), "a\\u{202e}b\\u{2028}c\\u{85}");
        assert_eq!(quoted("a`b\\n\n"), "`a\\`b\\\\n\\n`");
        assert_eq!(lines("one\n\ttwo\u{7}"), "one\n\ttwo\\u{7}");
        assert_eq!(path(Path::new(OsStr::from_bytes(b"/a\n\xff"))).to_string(), "/a\\n\u{fffd}");
        assert_eq!(format!("{:<5}|{:>5}|", shown("a\n"), shown("b")), "a\\n  |    b|");
    }

    proptest! {
        #[test]
        fn whatever_comes_stays_on_its_line(text in any::<String>()) {
            let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}');
            let shown = shown(&text).to_string();
            prop_assert!(!shown.contains(breaks), "{shown:?}");
            // To show it twice changes nothing.
            prop_assert_eq!(super::shown(&shown).to_string(), shown.as_str());
            prop_assert!(!lines(&text).replace(['\n', '\t'], "").contains(breaks));
        }

        #[test]
        fn what_is_quoted_can_be_told_apart(
            one in "[a\\\\n`\n\t\u{1b}]{0,4}",
            other in "[a\\\\n`\n\t\u{1b}]{0,4}",
        ) {
            let inside = quoted(&one);
            prop_assert!(!inside.contains(char::is_control));
            // No backtick ends it but the last.
            let unescaped = inside[1..inside.len() - 1].replace("\\\\", "").replace("\\`", "");
            prop_assert!(!unescaped.contains('`'), "{inside}");
            prop_assert_eq!(one == other, quoted(&one) == quoted(&other));
        }
    }
}
