//! The tables' columns: stated once, for writing, for reading, and for docs/results-format.md.

use std::marker::PhantomData;

use evenkeel_scenario::result::PARQUET_FILES;

use super::value::{Kind, Scalar, Values};

/// Begins the name of an axis' column.
pub(super) const AXIS: &str = "axis.";

/// What a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnFormat {
    /// Name in the file. Words in capitals stand for a name that the scenario gives.
    pub name: &'static str,
    /// Type of its values.
    pub kind: Kind,
    /// Whether a row may have none.
    pub nullable: bool,
    /// Unit, empty where there is none.
    pub unit: &'static str,
    /// What it says.
    pub about: &'static str,
}

/// What a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFormat {
    /// Name of the file.
    pub file: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// In the file's order.
    pub columns: &'static [ColumnFormat],
}

/// A column with a value in every row.
pub(super) struct Column<T> {
    pub format: ColumnFormat,
    kind: PhantomData<T>,
}

/// A column in which a row may have no value.
pub(super) struct Nullable<T> {
    pub format: ColumnFormat,
    kind: PhantomData<T>,
}

impl<T: Scalar> Column<T> {
    const fn new(name: &'static str, unit: &'static str, about: &'static str) -> Self {
        let format = ColumnFormat { name, kind: T::KIND, nullable: false, unit, about };
        Self { format, kind: PhantomData }
    }

    /// The column with these values.
    pub fn of(&self, values: impl Iterator<Item = T>) -> (String, Values) {
        (self.format.name.to_owned(), T::values(values.map(Some).collect()))
    }
}

impl<T: Scalar> Nullable<T> {
    const fn new(name: &'static str, unit: &'static str, about: &'static str) -> Self {
        let format = ColumnFormat { name, kind: T::KIND, nullable: true, unit, about };
        Self { format, kind: PhantomData }
    }

    /// As [`Column::of`].
    pub fn of(&self, values: impl Iterator<Item = Option<T>>) -> (String, Values) {
        (self.format.name.to_owned(), T::values(values.collect()))
    }
}

/// The run that a row belongs to; in the first table, the number of the row itself.
pub(super) const RUN: Column<u64> = Column::new("run", "", "the run: its row in `runs.parquet`, from 0");

/// Of `runs.parquet`.
pub(super) mod runs {
    use super::{Column, ColumnFormat, Kind};

    pub const REPETITION: Column<u64> =
        Column::new("repetition", "", "which repetition of its cell, from 0; at most 4294967295");
    pub const SEED: Column<u64> = Column::new("seed", "", "seed of the run's random draws");
    pub const DURATION_US: Column<u64> = Column::new("duration_us", "µs", "measured time");
    /// Stands for a column per axis.
    pub const AXES: ColumnFormat = ColumnFormat {
        name: "axis.NAME",
        kind: Kind::Text,
        nullable: true,
        unit: "",
        about: "a column per axis of the scenario, in its order: the label of the run's cell; null in a run without \
            that axis",
    };
    /// Stands for a column per metric.
    pub const METRICS: ColumnFormat = ColumnFormat {
        name: "METRIC",
        kind: Kind::Number,
        nullable: true,
        unit: "the metric's",
        about: "a column per metric that any run has, in the order of their names; null in a run without it",
    };
}

/// Of `counters.parquet`.
pub(super) mod counters {
    use super::{Column, Nullable};

    pub const VM: Column<String> = Column::new("vm", "", "the VM, as in `sender-0`");
    pub const COUNTER: Nullable<String> =
        Nullable::new("counter", "", "the counter, as in `TcpExtTCPTimeouts`; null in the one row of a VM without any");
    pub const INCREASE: Nullable<i64> =
        Nullable::new("increase", "", "its increase over the measured time; null where `counter` is");
}

/// Of `flows.parquet`.
pub(super) mod flows {
    use super::Column;

    pub const FROM: Column<String> = Column::new("from", "", "the sending VM");
    pub const TO: Column<String> = Column::new("to", "", "the receiving VM");
    pub const BYTES: Column<u64> = Column::new("bytes", "bytes", "payload that the receiver read");
    pub const START_US: Column<u64> = Column::new("start_us", "µs", "its begin, from the start of the measured time");
    pub const DURATION_US: Column<u64> =
        Column::new("duration_us", "µs", "completion time; for a long-lived flow, the measured time");
}

/// Of `series.parquet`.
pub(super) mod series {
    use super::{Column, Nullable};

    pub const SERIES: Column<u64> =
        Column::new("series", "", "which series of the run, from 0: two can have one name and subject");
    pub const NAME: Column<String> = Column::new("name", "", "what is recorded, as in `rto_ms`");
    pub const SUBJECT: Column<String> = Column::new("subject", "", "VM and flow it belongs to, as in `sender-0`");
    pub const T_US: Nullable<i64> = Nullable::new(
        "t_us",
        "µs",
        "time, from the start of the measured time; negative in the warm-up; null in the one row of a series without \
         points",
    );
    pub const VALUE: Nullable<f64> =
        Nullable::new("value", "as `name` ends", "value at that time; null where `t_us` is");
}

/// Of `packets.parquet`.
pub(super) mod packets {
    use super::Column;

    pub const T_US: Column<i64> = Column::new("t_us", "µs", "time, from the start of the plotted window");
    pub const AT: Column<String> = Column::new(
        "at",
        "",
        "where it was seen: `sender` (inside the sending VM), `sender-port` or `receiver-port` (on the host, at the \
         VM's port)",
    );
    pub const DATA: Column<bool> = Column::new("data", "", "true for the sender's segments, false for ACKs");
    pub const SEQ: Column<u64> =
        Column::new("seq", "bytes", "first byte, relative to the flow's first; for an ACK, the number acknowledged");
    pub const LEN: Column<u64> = Column::new("len", "bytes", "payload; at most 4294967295");
    pub const RETRANSMISSION: Column<bool> =
        Column::new("retransmission", "", "whether these bytes had been sent before");
    pub const DESCHEDULED: Column<bool> =
        Column::new("descheduled", "", "whether the VM was off its core at that time");
}

/// Of `remarks.parquet`.
pub(super) mod remarks {
    use super::Column;

    pub const REMARK: Column<String> = Column::new("remark", "", "what went wrong or differs in the run, one sentence");
}

/// Every table, as [`PARQUET_FILES`] has them.
pub const TABLES: [TableFormat; PARQUET_FILES.len()] = [
    TableFormat {
        file: PARQUET_FILES[0],
        about: "one repetition of one cell",
        columns: &[
            RUN.format,
            runs::REPETITION.format,
            runs::SEED.format,
            runs::DURATION_US.format,
            runs::AXES,
            runs::METRICS,
        ],
    },
    TableFormat {
        file: PARQUET_FILES[1],
        about: "one counter of one VM in one run; a VM without counters has one row",
        columns: &[RUN.format, counters::VM.format, counters::COUNTER.format, counters::INCREASE.format],
    },
    TableFormat {
        file: PARQUET_FILES[2],
        about: "one flow of one run, or one block of a strobe",
        columns: &[
            RUN.format,
            flows::FROM.format,
            flows::TO.format,
            flows::BYTES.format,
            flows::START_US.format,
            flows::DURATION_US.format,
        ],
    },
    TableFormat {
        file: PARQUET_FILES[3],
        about: "one point of one series of one run; a series without points has one row",
        columns: &[
            RUN.format,
            series::SERIES.format,
            series::NAME.format,
            series::SUBJECT.format,
            series::T_US.format,
            series::VALUE.format,
        ],
    },
    TableFormat {
        file: PARQUET_FILES[4],
        about: "one captured packet of the plotted flow of one run",
        columns: &[
            RUN.format,
            packets::T_US.format,
            packets::AT.format,
            packets::DATA.format,
            packets::SEQ.format,
            packets::LEN.format,
            packets::RETRANSMISSION.format,
            packets::DESCHEDULED.format,
        ],
    },
    TableFormat {
        file: PARQUET_FILES[5],
        about: "one remark on one run",
        columns: &[RUN.format, remarks::REMARK.format],
    },
];
