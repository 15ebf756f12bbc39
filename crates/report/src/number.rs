//! How figures are written.

/// A figure with `decimals` digits after the point. A figure that would round to zero keeps its first significant
/// digit.
pub(crate) fn figure(value: f64, decimals: u8) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let shows = |digits: &usize| value.abs() >= 0.5 * 10f64.powi(-(*digits as i32));
    let decimals = usize::from(decimals);
    let digits = (decimals..=decimals.max(4)).find(shows).unwrap_or(decimals);
    let text = format!("{value:.digits$}");
    // A negative figure that rounds to zero must not read as minus zero.
    if text.starts_with('-') && text.bytes().all(|byte| matches!(byte, b'-' | b'0' | b'.')) {
        text[1..].to_owned()
    } else {
        text
    }
}

/// Our figure over the paper's, or nothing where the paper's is zero.
pub(crate) fn ratio(here: f64, paper: f64) -> Option<String> {
    if paper == 0.0 || !here.is_finite() || !paper.is_finite() {
        return None;
    }
    let ratio = here / paper;
    Some(match ratio.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.005 => "<0.01".to_owned(),
        size if size < 10.0 => format!("{ratio:.2}"),
        size if size < 100.0 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    })
}

/// A ratio of two figures, as in `4.10x`.
pub(crate) fn times(value: f64) -> String {
    ratio(value, 1.0).map_or_else(|| "n/a".to_owned(), |ratio| format!("{ratio}\u{d7}"))
}

/// Digits in groups of three, from five digits on, with narrow no-break spaces. For HTML and plots.
pub(crate) fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("\u{2212}", rest));
    let (whole, fraction) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    if whole.len() < 5 || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("{sign}{rest}");
    }
    let mut out = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_what_counts() {
        assert_eq!(figure(941.25, 1), "941.2");
        assert_eq!(figure(0.0, 0), "0");
        assert_eq!(figure(0.3, 0), "0.3");
        assert_eq!(figure(0.031, 1), "0.03");
        assert_eq!(figure(-0.00001, 0), "0");
        assert_eq!(figure(f64::NAN, 2), "n/a");
    }

    #[test]
    fn ratios_are_ours_over_the_papers() {
        assert_eq!(ratio(941.0, 729.3).as_deref(), Some("1.29"));
        assert_eq!(ratio(1.0, 1000.0).as_deref(), Some("<0.01"));
        assert_eq!(ratio(0.0, 4.0).as_deref(), Some("0"));
        assert_eq!(ratio(4.0, 0.0), None);
        assert_eq!([0.6, 12.34, f64::NAN].map(times), ["0.60\u{d7}", "12.3\u{d7}", "n/a"]);
    }

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!(grouped("9999"), "9999");
        assert_eq!(grouped("137478"), "137\u{202f}478");
        assert_eq!(grouped("-1234567.5"), "\u{2212}1\u{202f}234\u{202f}567.5");
        assert_eq!(grouped("n/a"), "n/a");
    }
}
