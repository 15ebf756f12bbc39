//! From records to tables and back.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_quote::quoted;
use evenkeel_scenario::result::{FlowRecord, PARQUET_FILES, PacketRecord, RunRecord, SeenAt, Series};

use super::columns::{
    AXIS, ColumnFormat, RUN, counters as counters_of, flows as flows_of, packets as packets_of, remarks as remarks_of,
    runs as runs_of, series as series_of,
};
use super::table::Table;
use super::value::Values;
use crate::TableError;

/// Makes one table of all records.
pub type ToTable = fn(&[RunRecord]) -> Result<Table, TableError>;
/// Puts what one table has into the records.
type FromTable = fn(&mut [RunRecord], &mut Table) -> Result<(), TableError>;

/// One for each of [`PARQUET_FILES`].
pub(super) const TO_TABLES: [ToTable; PARQUET_FILES.len()] =
    [runs_table, counters_table, flows_table, series_table, packets_table, remarks_table];
/// As [`TO_TABLES`], the other way round, for all but the first, which makes the records ([`runs`]).
pub(super) const FROM_TABLES: [FromTable; PARQUET_FILES.len() - 1] = [counters, flows, series, packets, remarks];

/// What belongs to runs, with the number of its run.
fn of_runs<'a, I: IntoIterator + 'a>(
    records: &'a [RunRecord],
    of: impl Fn(&'a RunRecord) -> I + Copy + 'a,
) -> impl Iterator<Item = (u64, I::Item)> + 'a {
    records.iter().enumerate().flat_map(move |(run, record)| of(record).into_iter().map(move |item| (run as u64, item)))
}

fn runs_table(records: &[RunRecord]) -> Result<Table, TableError> {
    let mut axes: Vec<&str> = Vec::new();
    for (axis, _) in records.iter().flat_map(|record| &record.cell) {
        if !axes.contains(&axis.as_str()) {
            axes.push(axis);
        }
    }
    // A table has its columns once and in one order. `any` goes on where it stopped.
    for (run, record) in records.iter().enumerate() {
        let mut rest = axes.iter();
        if !record.cell.iter().all(|(name, _)| rest.any(|axis| axis == name)) {
            return Err(TableError::Records(format!(
                "run {run} has its axes in another order than other runs, or twice"
            )));
        }
    }
    // As JSON lines have them: by name.
    let metrics: BTreeSet<&str> = records.iter().flat_map(|record| record.metrics.keys().map(String::as_str)).collect();
    let own = [RUN.format, runs_of::REPETITION.format, runs_of::SEED.format, runs_of::DURATION_US.format];
    let taken = |name: &str| own.iter().any(|column| column.name == name) || name.starts_with(AXIS);
    if let Some(metric) = metrics.iter().find(|metric| taken(metric)) {
        return Err(TableError::Records(format!("the metric {} has the name of another column", quoted(metric))));
    }
    let mut columns = vec![
        RUN.of(0..records.len() as u64),
        runs_of::REPETITION.of(records.iter().map(|record| record.repetition.into())),
        runs_of::SEED.of(records.iter().map(|record| record.seed)),
        runs_of::DURATION_US.of(records.iter().map(|record| record.duration_us)),
    ];
    for axis in axes {
        let label =
            |record: &RunRecord| record.cell.iter().find(|(name, _)| name == axis).map(|(_, label)| label.clone());
        columns.push((format!("{AXIS}{axis}"), Values::Text(records.iter().map(label).collect())));
    }
    for metric in metrics {
        let figures = records.iter().map(|record| record.metrics.get(metric).copied()).collect();
        columns.push((metric.to_owned(), Values::Number(figures)));
    }
    Ok(Table { columns })
}

fn counters_table(records: &[RunRecord]) -> Result<Table, TableError> {
    let rows = || {
        of_runs(records, |record| &record.counters).flat_map(|(run, (vm, counters))| {
            let none = counters.is_empty().then_some((run, vm, None));
            counters.iter().map(move |counter| (run, vm, Some(counter))).chain(none)
        })
    };
    let columns = vec![
        RUN.of(rows().map(|(run, ..)| run)),
        counters_of::VM.of(rows().map(|(_, vm, _)| vm.clone())),
        counters_of::COUNTER.of(rows().map(|(.., counter)| counter.map(|(name, _)| name.clone()))),
        counters_of::INCREASE.of(rows().map(|(.., counter)| counter.map(|(_, increase)| *increase))),
    ];
    Ok(Table { columns })
}

fn flows_table(records: &[RunRecord]) -> Result<Table, TableError> {
    let rows = || of_runs(records, |record| &record.flows);
    let columns = vec![
        RUN.of(rows().map(|(run, _)| run)),
        flows_of::FROM.of(rows().map(|(_, flow)| flow.from.clone())),
        flows_of::TO.of(rows().map(|(_, flow)| flow.to.clone())),
        flows_of::BYTES.of(rows().map(|(_, flow)| flow.bytes)),
        flows_of::START_US.of(rows().map(|(_, flow)| flow.start_us)),
        flows_of::DURATION_US.of(rows().map(|(_, flow)| flow.duration_us)),
    ];
    Ok(Table { columns })
}

fn series_table(records: &[RunRecord]) -> Result<Table, TableError> {
    let rows = || {
        of_runs(records, |record| record.series.iter().enumerate()).flat_map(|(run, (number, series))| {
            let none = series.points.is_empty().then_some((run, number as u64, series, None));
            series.points.iter().map(move |point| (run, number as u64, series, Some(*point))).chain(none)
        })
    };
    let columns = vec![
        RUN.of(rows().map(|(run, ..)| run)),
        series_of::SERIES.of(rows().map(|(_, number, ..)| number)),
        series_of::NAME.of(rows().map(|(_, _, series, _)| series.name.clone())),
        series_of::SUBJECT.of(rows().map(|(_, _, series, _)| series.subject.clone())),
        series_of::T_US.of(rows().map(|(.., point)| point.map(|(t_us, _)| t_us))),
        series_of::VALUE.of(rows().map(|(.., point)| point.map(|(_, value)| value))),
    ];
    Ok(Table { columns })
}

fn packets_table(records: &[RunRecord]) -> Result<Table, TableError> {
    let rows = || of_runs(records, |record| &record.packets);
    let columns = vec![
        RUN.of(rows().map(|(run, _)| run)),
        packets_of::T_US.of(rows().map(|(_, packet)| packet.t_us)),
        packets_of::AT.of(rows().map(|(_, packet)| place_name(packet.at).to_owned())),
        packets_of::DATA.of(rows().map(|(_, packet)| packet.data)),
        packets_of::SEQ.of(rows().map(|(_, packet)| packet.seq)),
        packets_of::LEN.of(rows().map(|(_, packet)| packet.len.into())),
        packets_of::RETRANSMISSION.of(rows().map(|(_, packet)| packet.retransmission)),
        packets_of::DESCHEDULED.of(rows().map(|(_, packet)| packet.descheduled)),
    ];
    Ok(Table { columns })
}

fn remarks_table(records: &[RunRecord]) -> Result<Table, TableError> {
    let rows = || of_runs(records, |record| &record.remarks);
    let columns =
        vec![RUN.of(rows().map(|(run, _)| run)), remarks_of::REMARK.of(rows().map(|(_, remark)| remark.clone()))];
    Ok(Table { columns })
}

/// As JSON lines name it.
fn place_name(at: SeenAt) -> &'static str {
    match at {
        SeenAt::Sender => "sender",
        SeenAt::SenderPort => "sender-port",
        SeenAt::ReceiverPort => "receiver-port",
    }
}

fn bad(column: &ColumnFormat, row: usize, why: impl Into<String>) -> TableError {
    TableError::Value { column: column.name.to_owned(), row, why: why.into() }
}

/// A value of a column that is narrower in the records.
fn narrow(column: &ColumnFormat, row: usize, value: u64) -> Result<u32, TableError> {
    u32::try_from(value).map_err(|_| bad(column, row, format!("{value} is more than {}", u32::MAX)))
}

/// Makes the records, without what the other tables have.
pub(super) fn runs(mut table: Table) -> Result<Vec<RunRecord>, TableError> {
    let numbers = table.take(&RUN)?;
    let repetitions = table.take(&runs_of::REPETITION)?;
    let rest = table.take(&runs_of::SEED)?.into_iter().zip(table.take(&runs_of::DURATION_US)?);
    let mut records = Vec::new();
    for (row, ((number, repetition), (seed, duration_us))) in numbers.into_iter().zip(repetitions).zip(rest).enumerate()
    {
        if number != row as u64 {
            return Err(bad(&RUN.format, row, format!("{number}; runs count from 0")));
        }
        records.push(RunRecord {
            cell: Vec::new(),
            repetition: narrow(&runs_of::REPETITION.format, row, repetition)?,
            seed,
            duration_us,
            metrics: BTreeMap::new(),
            counters: BTreeMap::new(),
            flows: Vec::new(),
            series: Vec::new(),
            packets: Vec::new(),
            remarks: Vec::new(),
        });
    }
    for (name, values) in table.columns {
        let wanted = match (name.strip_prefix(AXIS), values) {
            (Some(axis), Values::Text(labels)) => {
                for (record, label) in records.iter_mut().zip(labels) {
                    record.cell.extend(label.map(|label| (axis.to_owned(), label)));
                }
                continue;
            }
            (None, Values::Number(values)) => {
                for (record, value) in records.iter_mut().zip(values) {
                    record.metrics.extend(value.map(|value| (name.clone(), value)));
                }
                continue;
            }
            (Some(_), values) => (values.kind(), runs_of::AXES.kind),
            (None, values) => (values.kind(), runs_of::METRICS.kind),
        };
        return Err(TableError::Type { column: name, found: wanted.0.name(), wanted: wanted.1.name() });
    }
    Ok(records)
}

fn counters(records: &mut [RunRecord], table: &mut Table) -> Result<(), TableError> {
    let of = table.take(&RUN)?.into_iter().zip(table.take(&counters_of::VM)?);
    let names = table.take_nullable(&counters_of::COUNTER)?;
    let increases = table.take_nullable(&counters_of::INCREASE)?;
    for (row, ((run, vm), counter)) in of.zip(names.into_iter().zip(increases)).enumerate() {
        let counters = &mut record(records, row, run)?.counters;
        let known = counters.contains_key(&vm);
        let of_vm = counters.entry(vm).or_default();
        match counter {
            (Some(name), Some(increase)) if !known || !of_vm.is_empty() => {
                if of_vm.insert(name, increase).is_some() {
                    return Err(bad(&counters_of::COUNTER.format, row, "the VM has this counter twice in the run"));
                }
            }
            (None, None) if !known => {}
            (Some(_), None) => {
                return Err(bad(&counters_of::INCREASE.format, row, "no value, though there is a counter"));
            }
            (None, Some(_)) => {
                return Err(bad(&counters_of::COUNTER.format, row, "no value, though there is an increase"));
            }
            _ => return Err(bad(&counters_of::COUNTER.format, row, "a VM without counters has one row in the run")),
        }
    }
    Ok(())
}

fn flows(records: &mut [RunRecord], table: &mut Table) -> Result<(), TableError> {
    let runs = table.take(&RUN)?;
    let ends = table.take(&flows_of::FROM)?.into_iter().zip(table.take(&flows_of::TO)?);
    let bytes = table.take(&flows_of::BYTES)?;
    let times = table.take(&flows_of::START_US)?.into_iter().zip(table.take(&flows_of::DURATION_US)?);
    for (row, (((run, (from, to)), bytes), (start_us, duration_us))) in
        runs.into_iter().zip(ends).zip(bytes).zip(times).enumerate()
    {
        record(records, row, run)?.flows.push(FlowRecord { from, to, bytes, start_us, duration_us });
    }
    Ok(())
}

fn series(records: &mut [RunRecord], table: &mut Table) -> Result<(), TableError> {
    let places = table.take(&RUN)?.into_iter().zip(table.take(&series_of::SERIES)?);
    let names = table.take(&series_of::NAME)?.into_iter().zip(table.take(&series_of::SUBJECT)?);
    let points = table.take_nullable(&series_of::T_US)?.into_iter().zip(table.take_nullable(&series_of::VALUE)?);
    for (row, (((run, number), (name, subject)), point)) in places.zip(names).zip(points).enumerate() {
        let of_run = &mut record(records, row, run)?.series;
        let begins = number == of_run.len() as u64;
        if begins {
            of_run.push(Series { name: name.clone(), subject: subject.clone(), points: Vec::new() });
        }
        let is_last = number.checked_add(1) == Some(of_run.len() as u64);
        let Some(last) = of_run.last_mut().filter(|_| is_last) else {
            return Err(bad(&series_of::SERIES.format, row, format!("{number} is out of order")));
        };
        if last.name != name {
            return Err(bad(&series_of::NAME.format, row, "another name than in the series' first row"));
        }
        if last.subject != subject {
            return Err(bad(&series_of::SUBJECT.format, row, "another subject than in the series' first row"));
        }
        match point {
            (Some(t_us), Some(value)) if begins || !last.points.is_empty() => last.points.push((t_us, value)),
            (None, None) if begins => {}
            (Some(_), None) => return Err(bad(&series_of::VALUE.format, row, "no value, though there is a time")),
            (None, Some(_)) => return Err(bad(&series_of::T_US.format, row, "no value, though there is a figure")),
            _ => return Err(bad(&series_of::T_US.format, row, "a series without points has one row")),
        }
    }
    Ok(())
}

fn packets(records: &mut [RunRecord], table: &mut Table) -> Result<(), TableError> {
    let places = table.take(&RUN)?.into_iter().zip(table.take(&packets_of::T_US)?);
    let seen = table.take(&packets_of::AT)?.into_iter().zip(table.take(&packets_of::DATA)?);
    let bytes = table.take(&packets_of::SEQ)?.into_iter().zip(table.take(&packets_of::LEN)?);
    let marks = table.take(&packets_of::RETRANSMISSION)?.into_iter().zip(table.take(&packets_of::DESCHEDULED)?);
    for (row, ((((run, t_us), (at, data)), (seq, len)), (retransmission, descheduled))) in
        places.zip(seen).zip(bytes).zip(marks).enumerate()
    {
        let place = [SeenAt::Sender, SeenAt::SenderPort, SeenAt::ReceiverPort]
            .into_iter()
            .find(|place| place_name(*place) == at);
        let packet = PacketRecord {
            t_us,
            at: place.ok_or_else(|| bad(&packets_of::AT.format, row, format!("{} is no place", quoted(&at))))?,
            data,
            seq,
            len: narrow(&packets_of::LEN.format, row, len)?,
            retransmission,
            descheduled,
        };
        record(records, row, run)?.packets.push(packet);
    }
    Ok(())
}

fn remarks(records: &mut [RunRecord], table: &mut Table) -> Result<(), TableError> {
    let runs = table.take(&RUN)?;
    for (row, (run, remark)) in runs.into_iter().zip(table.take(&remarks_of::REMARK)?).enumerate() {
        record(records, row, run)?.remarks.push(remark);
    }
    Ok(())
}

fn record(records: &mut [RunRecord], row: usize, run: u64) -> Result<&mut RunRecord, TableError> {
    let runs = records.len();
    let place = usize::try_from(run).ok().and_then(|run| records.get_mut(run));
    place.ok_or_else(|| bad(&RUN.format, row, format!("run {run} is not among the {runs} of {}", PARQUET_FILES[0])))
}
