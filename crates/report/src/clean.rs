//! Untrusted text, before it goes anywhere.

/// Text without control characters, which could steer a terminal and which HTML does not allow, and without directional
/// overrides, which could make it read as something else. Line breaks stay where `lines` says so.
pub(crate) fn clean(text: &str, lines: bool) -> String {
    let bad = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let keep = |c: char| !bad(c) || (lines && matches!(c, '\n' | '\t'));
    text.chars().map(|c| if keep(c) { c } else { '\u{fffd}' }).collect()
}
