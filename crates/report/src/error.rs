//! What can go wrong on the way to a report.

use std::path::PathBuf;

use evenkeel_quote::{path, quoted, shown};
use evenkeel_scenario::ScenarioError;
use parquet::errors::ParquetError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The results cannot be read or written.
    #[error(transparent)]
    Results(#[from] ScenarioError),
    /// The scenario kept with the results cannot be read.
    #[error("{}: the scenario kept in it: {}", path(file), shown(source.message()))]
    Scenario {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        source: Box<toml::de::Error>,
    },
    /// There is not one run to report.
    #[error("{} holds no run: the experiment ended before its first repetition was over", path(file))]
    NoRuns {
        /// The file.
        file: PathBuf,
    },
    /// A Parquet table cannot be made, or does not hold what it should.
    #[error("{}: table {}: {problem}", path(file), quoted(table))]
    Table {
        /// The file.
        file: PathBuf,
        /// The table.
        table: String,
        /// What is wrong, and in which column.
        problem: TableError,
    },
    /// There are tables, but not what is written when all of them are there.
    #[error(
        "{} is missing: the tables beside it were not written to their end; run the experiment again, or go on with \
         `evenkeel sweep`",
        path(file)
    )]
    Unfinished {
        /// The file.
        file: PathBuf,
    },
    /// The list of tables cannot be made, or does not hold what it should.
    #[error("{}: {}", path(file), shown(why))]
    Manifest {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file is not the one that was written with the tables.
    #[error("{} is damaged, or not of the same results as the tables beside it: {}", path(file), shown(why))]
    Damaged {
        /// The file.
        file: PathBuf,
        /// How it differs.
        why: String,
    },
    /// A file or a directory cannot be read.
    #[error("cannot read {}: {source}", path(file))]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The rows of a scorecard are not what they should be.
    #[error("{}: {why}", path(file))]
    Rows {
        /// The file.
        file: PathBuf,
        /// Which row, what is wrong and what is allowed.
        why: String,
    },
    /// The list of changes that no figure depends on is not what it should be.
    #[error("{}: {why}", path(file))]
    Changes {
        /// The file.
        file: PathBuf,
        /// Where, what is wrong and what is allowed.
        why: String,
    },
    /// The report cannot be written.
    #[error("cannot write {}: {source}", path(file))]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What is wrong with a Parquet table. Rows count from 0.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It is no Parquet file, or cannot be written.
    #[error(transparent)]
    File(#[from] ParquetError),
    /// A column cannot be read.
    #[error("column {}: {source}", quoted(column))]
    Column {
        /// The column's name.
        column: String,
        /// What the parquet crate said.
        source: ParquetError,
    },
    /// A column is not there.
    #[error("column {} is missing", quoted(column))]
    Missing {
        /// The column's name.
        column: String,
    },
    /// A column is there that this table does not have.
    #[error("column {} is not one of this table's", quoted(column))]
    Unknown {
        /// The column's name.
        column: String,
    },
    /// Two columns have one name.
    #[error("column {} is there twice", quoted(column))]
    Twice {
        /// The column's name.
        column: String,
    },
    /// A column has the type of another.
    #[error("column {} has the type {found}, not {wanted}", quoted(column))]
    Type {
        /// The column's name.
        column: String,
        /// Its type.
        found: &'static str,
        /// The type it should have.
        wanted: &'static str,
    },
    /// A column has a type that none here has.
    #[error("column {} has the type {found}, which evenkeel does not write", quoted(column))]
    Foreign {
        /// The column's name.
        column: String,
        /// Its type.
        found: String,
    },
    /// A column is shorter or longer than the file says.
    #[error("column {} has {found} rows of {declared}", quoted(column))]
    Rows {
        /// The column's name.
        column: String,
        /// Rows there are.
        found: usize,
        /// Rows there should be, as the file has the number.
        declared: String,
    },
    /// A value is missing.
    #[error("column {}, row {row}: no value", quoted(column))]
    Null {
        /// The column's name.
        column: String,
        /// The row's number, from 0.
        row: usize,
    },
    /// A value cannot be.
    #[error("column {}, row {row}: {why}", quoted(column))]
    Value {
        /// The column's name.
        column: String,
        /// The row's number, from 0.
        row: usize,
        /// Why not.
        why: String,
    },
    /// Records that the tables cannot hold.
    #[error("{0}")]
    Records(String),
}
