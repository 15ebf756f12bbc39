//! Bounded lines out of a byte stream.

use std::io::{self, Read};

/// Longest line that is taken.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Bytes asked for at a time: a virtio port hands out at most a page.
const READ_BYTES: usize = 16 * 1024;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its newline.
    Text(Vec<u8>),
    /// A line above [`MAX_LINE_BYTES`], dropped.
    TooLong,
    /// A read returned nothing. An unfinished line is kept.
    Eof,
}

/// Cuts lines; keeps what came after the last newline.
#[derive(Debug)]
pub struct Lines {
    pending: Vec<u8>,
    /// How much of `pending` is known to hold no newline.
    searched: usize,
    dropping: bool,
    buffer: Vec<u8>,
}

impl Lines {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self { pending: Vec::new(), searched: 0, dropping: false, buffer: vec![0; READ_BYTES] }
    }

    /// The next line.
    pub fn next(&mut self, reader: &mut impl Read) -> io::Result<Line> {
        loop {
            if let Some(at) = self.pending[self.searched..].iter().position(|&b| b == b'\n') {
                let mut line: Vec<u8> = self.pending.drain(..=self.searched + at).collect();
                line.pop();
                self.searched = 0;
                if std::mem::take(&mut self.dropping) || line.len() > MAX_LINE_BYTES {
                    return Ok(Line::TooLong);
                }
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Ok(Line::Text(line));
            }
            self.searched = self.pending.len();
            if self.pending.len() > MAX_LINE_BYTES {
                self.dropping = true;
            }
            if self.dropping {
                self.pending.clear();
                self.searched = 0;
            }
            let n = reader.read(&mut self.buffer)?;
            if n == 0 {
                return Ok(Line::Eof);
            }
            self.pending.extend_from_slice(&self.buffer[..n]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &[u8]) -> Vec<Line> {
        let mut lines = Lines::new();
        let mut reader = text;
        let mut cut = Vec::new();
        loop {
            match lines.next(&mut reader).expect("a slice reads") {
                Line::Eof => return cut,
                line => cut.push(line),
            }
        }
    }

    #[test]
    fn lines_are_cut_and_empty_ones_passed_over() {
        assert_eq!(cut(b"a\n\r\nbc\nrest"), [Line::Text(b"a".to_vec()), Line::Text(b"bc".to_vec())]);
    }

    #[test]
    fn a_line_above_the_limit_is_dropped_and_the_next_one_taken() {
        let mut text = vec![b'x'; 3 * MAX_LINE_BYTES];
        text.extend_from_slice(b"\nnext\n");
        assert_eq!(cut(&text), [Line::TooLong, Line::Text(b"next".to_vec())]);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_taken() {
        let mut text = vec![b'x'; MAX_LINE_BYTES];
        text.push(b'\n');
        assert_eq!(cut(&text), [Line::Text(vec![b'x'; MAX_LINE_BYTES])]);
        text.insert(0, b'x');
        assert_eq!(cut(&text), [Line::TooLong]);
    }
}
