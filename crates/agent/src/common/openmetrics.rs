//! The part of OpenMetrics that the library leaves to its users.

/// A label's value as OpenMetrics has it between quotes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}
