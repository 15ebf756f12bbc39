//! The report: its tables, its page, how it looks in a browser, and the files in columns.

mod browser;
mod columnar;
mod common;
mod kept;
mod page;
mod scorecard;
mod tables;
