//! From records to tables and back.

use std::collections::BTreeMap;

use evenkeel_scenario::result::{FlowRecord, PARQUET_FILES, PacketRecord, RunRecord, SeenAt, Series};

use super::table::{Table, Values};

/// Begins the name of an axis' column.
const AXIS: &str = "axis.";
/// Columns of a run that are no metrics.
const OF_A_RUN: [&str; 4] = ["run", "repetition", "seed", "duration_us"];

/// Makes one table of all records.
type ToTable = fn(&[RunRecord]) -> Result<Table, String>;
/// Puts what one table has into the records.
type FromTable = fn(&mut [RunRecord], Table) -> Result<(), String>;

/// One for each of [`PARQUET_FILES`].
pub(super) const TO_TABLES: [ToTable; PARQUET_FILES.len()] =
    [runs_table, counters_table, flows_table, series_table, packets_table, remarks_table];
/// As [`TO_TABLES`], the other way round, for all but the first, which makes the records ([`runs`]).
pub(super) const FROM_TABLES: [FromTable; PARQUET_FILES.len() - 1] = [counters, flows, series, packets, remarks];

fn text<'a>(name: &str, values: impl Iterator<Item = Option<&'a str>>) -> (String, Values) {
    (name.to_owned(), Values::Text(values.map(|value| value.map(str::to_owned)).collect()))
}

fn natural(name: &str, values: impl Iterator<Item = u64>) -> (String, Values) {
    (name.to_owned(), Values::Natural(values.map(Some).collect()))
}

fn integer(name: &str, values: impl Iterator<Item = Option<i64>>) -> (String, Values) {
    (name.to_owned(), Values::Integer(values.collect()))
}

fn number(name: &str, values: impl Iterator<Item = Option<f64>>) -> (String, Values) {
    (name.to_owned(), Values::Number(values.collect()))
}

fn truth(name: &str, values: impl Iterator<Item = bool>) -> (String, Values) {
    (name.to_owned(), Values::Truth(values.map(Some).collect()))
}

/// What belongs to runs, with the number of its run.
fn of_runs<'a, I: IntoIterator + 'a>(
    records: &'a [RunRecord],
    of: impl Fn(&'a RunRecord) -> I + Copy + 'a,
) -> impl Iterator<Item = (u64, I::Item)> + 'a {
    records.iter().enumerate().flat_map(move |(run, record)| of(record).into_iter().map(move |item| (run as u64, item)))
}

fn runs_table(records: &[RunRecord]) -> Result<Table, String> {
    let (mut axes, mut metrics): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for record in records {
        for (axis, _) in &record.cell {
            if !axes.contains(&axis.as_str()) {
                axes.push(axis);
            }
        }
    }
    // As JSON lines have them: by name.
    metrics.extend(records.iter().flat_map(|record| record.metrics.keys().map(String::as_str)));
    metrics.sort_unstable();
    metrics.dedup();
    if let Some(taken) = metrics.iter().find(|metric| OF_A_RUN.contains(metric) || metric.starts_with(AXIS)) {
        return Err(format!("the metric `{taken}` has the name of another column"));
    }
    let mut columns = vec![
        natural("run", 0..records.len() as u64),
        natural("repetition", records.iter().map(|record| record.repetition.into())),
        natural("seed", records.iter().map(|record| record.seed)),
        natural("duration_us", records.iter().map(|record| record.duration_us)),
    ];
    for axis in axes {
        let labels = records.iter().map(|record| record.cell.iter().find(|(name, _)| name == axis));
        columns.push(text(&format!("{AXIS}{axis}"), labels.map(|label| label.map(|(_, label)| label.as_str()))));
    }
    columns.extend(
        metrics.iter().map(|name| number(name, records.iter().map(|record| record.metrics.get(*name).copied()))),
    );
    Ok(Table { columns })
}

fn counters_table(records: &[RunRecord]) -> Result<Table, String> {
    let rows = || {
        of_runs(records, |record| &record.counters).flat_map(|(run, (vm, counters))| {
            let none = counters.is_empty().then_some((run, vm, None));
            counters.iter().map(move |counter| (run, vm, Some(counter))).chain(none)
        })
    };
    let columns = vec![
        natural("run", rows().map(|(run, ..)| run)),
        text("vm", rows().map(|(_, vm, _)| Some(vm.as_str()))),
        text("counter", rows().map(|(.., counter)| counter.map(|(name, _)| name.as_str()))),
        integer("increase", rows().map(|(.., counter)| counter.map(|(_, increase)| *increase))),
    ];
    Ok(Table { columns })
}

fn flows_table(records: &[RunRecord]) -> Result<Table, String> {
    let rows = || of_runs(records, |record| &record.flows);
    let columns = vec![
        natural("run", rows().map(|(run, _)| run)),
        text("from", rows().map(|(_, flow)| Some(flow.from.as_str()))),
        text("to", rows().map(|(_, flow)| Some(flow.to.as_str()))),
        natural("bytes", rows().map(|(_, flow)| flow.bytes)),
        natural("start_us", rows().map(|(_, flow)| flow.start_us)),
        natural("duration_us", rows().map(|(_, flow)| flow.duration_us)),
    ];
    Ok(Table { columns })
}

fn series_table(records: &[RunRecord]) -> Result<Table, String> {
    let rows = || {
        of_runs(records, |record| record.series.iter().enumerate()).flat_map(|(run, (number, series))| {
            let none = series.points.is_empty().then_some((run, number as u64, series, None));
            series.points.iter().map(move |point| (run, number as u64, series, Some(*point))).chain(none)
        })
    };
    let columns = vec![
        natural("run", rows().map(|(run, ..)| run)),
        natural("series", rows().map(|(_, number, ..)| number)),
        text("name", rows().map(|(_, _, series, _)| Some(series.name.as_str()))),
        text("subject", rows().map(|(_, _, series, _)| Some(series.subject.as_str()))),
        integer("t_us", rows().map(|(.., point)| point.map(|(t_us, _)| t_us))),
        number("value", rows().map(|(.., point)| point.map(|(_, value)| value))),
    ];
    Ok(Table { columns })
}

fn packets_table(records: &[RunRecord]) -> Result<Table, String> {
    let rows = || of_runs(records, |record| &record.packets);
    let columns = vec![
        natural("run", rows().map(|(run, _)| run)),
        integer("t_us", rows().map(|(_, packet)| Some(packet.t_us))),
        text("at", rows().map(|(_, packet)| Some(place_name(packet.at)))),
        truth("data", rows().map(|(_, packet)| packet.data)),
        natural("seq", rows().map(|(_, packet)| packet.seq)),
        natural("len", rows().map(|(_, packet)| packet.len.into())),
        truth("retransmission", rows().map(|(_, packet)| packet.retransmission)),
        truth("descheduled", rows().map(|(_, packet)| packet.descheduled)),
    ];
    Ok(Table { columns })
}

fn remarks_table(records: &[RunRecord]) -> Result<Table, String> {
    let rows = || of_runs(records, |record| &record.remarks);
    let columns = vec![
        natural("run", rows().map(|(run, _)| run)),
        text("remark", rows().map(|(_, remark)| Some(remark.as_str()))),
    ];
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

/// Makes the records, without what the other tables have.
pub(super) fn runs(mut table: Table) -> Result<Vec<RunRecord>, String> {
    let mut records = Vec::new();
    let repetitions = all(table.naturals("repetition")?, "repetition")?;
    let seeds = all(table.naturals("seed")?, "seed")?;
    let durations = all(table.naturals("duration_us")?, "duration_us")?;
    for ((repetition, seed), duration_us) in repetitions.into_iter().zip(seeds).zip(durations) {
        records.push(RunRecord {
            cell: Vec::new(),
            repetition: u32::try_from(repetition).map_err(|_| format!("a repetition cannot be {repetition}"))?,
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
        match (name.strip_prefix(AXIS), values) {
            (Some(axis), Values::Text(labels)) => {
                for (record, label) in records.iter_mut().zip(labels) {
                    record.cell.extend(label.map(|label| (axis.to_owned(), label)));
                }
            }
            (None, Values::Number(values)) => {
                for (record, value) in records.iter_mut().zip(values) {
                    record.metrics.extend(value.map(|value| (name.clone(), value)));
                }
            }
            _ if OF_A_RUN.contains(&name.as_str()) => {}
            _ => return Err(format!("column `{name}` is neither an axis' nor a metric's")),
        }
    }
    Ok(records)
}

fn counters(records: &mut [RunRecord], mut table: Table) -> Result<(), String> {
    let runs = all(table.naturals("run")?, "run")?;
    let vms = all(table.texts("vm")?, "vm")?;
    let counters = table.texts("counter")?.into_iter().zip(table.integers("increase")?);
    for ((run, vm), (counter, increase)) in runs.into_iter().zip(vms).zip(counters) {
        let of_vm = record(records, run)?.counters.entry(vm).or_default();
        of_vm.extend(counter.zip(increase));
    }
    Ok(())
}

fn flows(records: &mut [RunRecord], mut table: Table) -> Result<(), String> {
    let runs = all(table.naturals("run")?, "run")?;
    let ends = all(table.texts("from")?, "from")?.into_iter().zip(all(table.texts("to")?, "to")?);
    let bytes = all(table.naturals("bytes")?, "bytes")?;
    let times = all(table.naturals("start_us")?, "start_us")?
        .into_iter()
        .zip(all(table.naturals("duration_us")?, "duration_us")?);
    for (((run, (from, to)), bytes), (start_us, duration_us)) in runs.into_iter().zip(ends).zip(bytes).zip(times) {
        record(records, run)?.flows.push(FlowRecord { from, to, bytes, start_us, duration_us });
    }
    Ok(())
}

fn series(records: &mut [RunRecord], mut table: Table) -> Result<(), String> {
    let places = all(table.naturals("run")?, "run")?.into_iter().zip(all(table.naturals("series")?, "series")?);
    let names = all(table.texts("name")?, "name")?.into_iter().zip(all(table.texts("subject")?, "subject")?);
    let points = table.integers("t_us")?.into_iter().zip(table.numbers("value")?);
    for (((run, number), (name, subject)), (t_us, value)) in places.zip(names).zip(points) {
        let of_run = &mut record(records, run)?.series;
        if number == of_run.len() as u64 {
            of_run.push(Series { name, subject, points: Vec::new() });
        }
        let is_last = number + 1 == of_run.len() as u64;
        match of_run.last_mut() {
            Some(last) if is_last => last.points.extend(t_us.zip(value)),
            _ => return Err(format!("series {number} of run {run} is out of order")),
        }
    }
    Ok(())
}

fn packets(records: &mut [RunRecord], mut table: Table) -> Result<(), String> {
    let places = all(table.naturals("run")?, "run")?.into_iter().zip(all(table.integers("t_us")?, "t_us")?);
    let seen = all(table.texts("at")?, "at")?.into_iter().zip(all(table.truths("data")?, "data")?);
    let bytes = all(table.naturals("seq")?, "seq")?.into_iter().zip(all(table.naturals("len")?, "len")?);
    let marks = all(table.truths("retransmission")?, "retransmission")?
        .into_iter()
        .zip(all(table.truths("descheduled")?, "descheduled")?);
    for ((((run, t_us), (at, data)), (seq, len)), (retransmission, descheduled)) in
        places.zip(seen).zip(bytes).zip(marks)
    {
        let at = [SeenAt::Sender, SeenAt::SenderPort, SeenAt::ReceiverPort]
            .into_iter()
            .find(|place| place_name(*place) == at);
        let packet = PacketRecord {
            t_us,
            at: at.ok_or("column `at` has a place that does not exist")?,
            data,
            seq,
            len: u32::try_from(len).map_err(|_| format!("a packet cannot have {len} bytes"))?,
            retransmission,
            descheduled,
        };
        record(records, run)?.packets.push(packet);
    }
    Ok(())
}

fn remarks(records: &mut [RunRecord], mut table: Table) -> Result<(), String> {
    let runs = all(table.naturals("run")?, "run")?;
    for (run, remark) in runs.into_iter().zip(all(table.texts("remark")?, "remark")?) {
        record(records, run)?.remarks.push(remark);
    }
    Ok(())
}

fn record(records: &mut [RunRecord], run: u64) -> Result<&mut RunRecord, String> {
    let runs = records.len();
    let place = usize::try_from(run).ok().and_then(|run| records.get_mut(run));
    place.ok_or_else(|| format!("run {run} is not among the {runs} of {}", PARQUET_FILES[0]))
}

/// The values of a column that must not have nulls.
fn all<T>(values: Vec<Option<T>>, name: &str) -> Result<Vec<T>, String> {
    values.into_iter().collect::<Option<_>>().ok_or_else(|| format!("column `{name}` has nulls"))
}
