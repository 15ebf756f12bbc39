//! One Parquet file: named columns of one length. Every column may have nulls, and none is nested.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use evenkeel_scenario::ScenarioError;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnDescriptor, Type, TypePtr};

use crate::ReportError;

/// Rows that are encoded together.
const GROUP_ROWS: usize = 1 << 20;

/// A column's values.
#[derive(Debug, PartialEq)]
pub(super) enum Values {
    /// UTF-8.
    Text(Vec<Option<String>>),
    /// 64 bits, with a sign.
    Integer(Vec<Option<i64>>),
    /// 64 bits, without.
    Natural(Vec<Option<u64>>),
    /// Double precision.
    Number(Vec<Option<f64>>),
    /// True or false.
    Truth(Vec<Option<bool>>),
}

/// A table.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Table {
    /// Columns, in their order.
    pub columns: Vec<(String, Values)>,
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Integer(values) => values.len(),
            Self::Natural(values) => values.len(),
            Self::Number(values) => values.len(),
            Self::Truth(values) => values.len(),
        }
    }

    fn physical(&self) -> (Physical, Option<LogicalType>) {
        match self {
            Self::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Integer(_) => (Physical::INT64, None),
            Self::Natural(_) => (Physical::INT64, Some(LogicalType::Integer { bit_width: 64, is_signed: false })),
            Self::Number(_) => (Physical::DOUBLE, None),
            Self::Truth(_) => (Physical::BOOLEAN, None),
        }
    }

    /// An empty column of the type that a file declares; none for a type that no table here has.
    fn empty(column: &ColumnDescriptor) -> Option<Self> {
        let unsigned = LogicalType::Integer { bit_width: 64, is_signed: false };
        match (column.physical_type(), column.logical_type_ref()) {
            (Physical::BYTE_ARRAY, Some(LogicalType::String)) => Some(Self::Text(Vec::new())),
            (Physical::INT64, None) => Some(Self::Integer(Vec::new())),
            (Physical::INT64, Some(logical)) if *logical == unsigned => Some(Self::Natural(Vec::new())),
            (Physical::DOUBLE, None) => Some(Self::Number(Vec::new())),
            (Physical::BOOLEAN, None) => Some(Self::Truth(Vec::new())),
            _ => None,
        }
    }
}

impl Table {
    /// Writes the file anew.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        let file = File::create(path).map_err(|source| ReportError::Write { file: path.to_owned(), source })?;
        self.encode(file).map_err(|error| failed(path, &error))
    }

    fn encode(&self, file: File) -> ParquetResult<()> {
        let rows = self.columns.first().map_or(0, |(_, values)| values.len());
        let mut writer = SerializedFileWriter::new(file, self.schema()?, Arc::new(WriterProperties::default()))?;
        for first in (0..rows).step_by(GROUP_ROWS) {
            let rows = first..rows.min(first + GROUP_ROWS);
            let mut group = writer.next_row_group()?;
            for (_, values) in &self.columns {
                let group = &mut group;
                match values {
                    Values::Text(values) => {
                        put::<ByteArrayType, _>(group, &values[rows.clone()], |v| v.as_str().into())
                    }
                    Values::Integer(values) => put::<Int64Type, _>(group, &values[rows.clone()], |v| *v),
                    Values::Natural(values) => put::<Int64Type, _>(group, &values[rows.clone()], |v| *v as i64),
                    Values::Number(values) => put::<DoubleType, _>(group, &values[rows.clone()], |v| *v),
                    Values::Truth(values) => put::<BoolType, _>(group, &values[rows.clone()], |v| *v),
                }?;
            }
            group.close()?;
        }
        writer.close().map(|_| ())
    }

    fn schema(&self) -> ParquetResult<TypePtr> {
        let column = |(name, values): &(String, Values)| {
            let (physical, logical) = values.physical();
            let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
            builder.with_logical_type(logical).build().map(Arc::new)
        };
        let columns = self.columns.iter().map(column).collect::<ParquetResult<Vec<_>>>()?;
        Type::group_type_builder("evenkeel").with_fields(columns).build().map(Arc::new)
    }

    /// Reads a file that [`Self::write`] has written.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let file = File::open(path).map_err(|source| ScenarioError::Read { file: path.to_owned(), source })?;
        Self::decode(file).map_err(|error| failed(path, &error))
    }

    fn decode(file: File) -> ParquetResult<Self> {
        let reader = SerializedFileReader::new(file)?;
        let mut columns = Vec::new();
        for column in reader.metadata().file_metadata().schema_descr().columns() {
            let simple = column.max_rep_level() == 0 && column.max_def_level() == 1;
            let values = Values::empty(column).filter(|_| simple);
            let unknown =
                || ParquetError::General(format!("column `{}` has a type that evenkeel does not write", column.name()));
            columns.push((column.name().to_owned(), values.ok_or_else(unknown)?));
        }
        for index in 0..reader.num_row_groups() {
            let group = &*reader.get_row_group(index)?;
            for (place, (_, values)) in columns.iter_mut().enumerate() {
                match values {
                    Values::Text(values) => {
                        take::<ByteArrayType, _>(group, place, values, |v| v.as_utf8().map(str::to_owned))
                    }
                    Values::Integer(values) => take::<Int64Type, _>(group, place, values, |v| Ok(*v)),
                    Values::Natural(values) => take::<Int64Type, _>(group, place, values, |v| Ok(*v as u64)),
                    Values::Number(values) => take::<DoubleType, _>(group, place, values, |v| Ok(*v)),
                    Values::Truth(values) => take::<BoolType, _>(group, place, values, |v| Ok(*v)),
                }?;
            }
        }
        Ok(Self { columns })
    }
}

/// Takes a column out of the table; an error if it is not there or of another type.
macro_rules! take {
    ($($method:ident: $variant:ident of $type:ty;)*) => {
        impl Table {
            $(/// Takes this column.
            pub fn $method(&mut self, name: &str) -> Result<Vec<Option<$type>>, String> {
                let values = self.columns.iter_mut().find(|(column, _)| column == name).map(|(_, values)| values);
                match values {
                    Some(Values::$variant(values)) => Ok(std::mem::take(values)),
                    Some(_) => Err(format!("column `{name}` has another type")),
                    None => Err(format!("column `{name}` is missing")),
                }
            })*
        }
    };
}

take! {
    texts: Text of String;
    naturals: Natural of u64;
    integers: Integer of i64;
    numbers: Number of f64;
    truths: Truth of bool;
}

/// Appends a column to a row group.
fn put<T: DataType, V>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[Option<V>],
    encode: impl Fn(&V) -> T::T,
) -> ParquetResult<()> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let present: Vec<T::T> = values.iter().flatten().map(encode).collect();
    let too_many = || ParquetError::General("more columns than the schema has".to_owned());
    let mut column = group.next_column()?.ok_or_else(too_many)?;
    column.typed::<T>().write_batch(&present, Some(&levels), None)?;
    column.close()
}

/// Appends a row group's column to `values`.
fn take<T: DataType, V>(
    group: &dyn RowGroupReader,
    place: usize,
    values: &mut Vec<Option<V>>,
    decode: impl Fn(&T::T) -> ParquetResult<V>,
) -> ParquetResult<()> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    let other = || ParquetError::General(format!("column {place} is not of the type that the schema has"));
    let mut column = T::get_column_reader(group.get_column_reader(place)?).ok_or_else(other)?;
    let (mut levels, mut present) = (Vec::new(), Vec::new());
    let (read, ..) = column.read_records(rows, Some(&mut levels), None, &mut present)?;
    if read != rows || levels.len() != rows {
        return Err(ParquetError::General(format!("column {place} has {read} of {rows} rows")));
    }
    let mut present = present.iter();
    for level in levels {
        values.push(if level == 0 { None } else { present.next().map(&decode).transpose()? });
    }
    Ok(())
}

fn failed(path: &Path, error: &ParquetError) -> ReportError {
    ReportError::Table { file: path.to_owned(), why: error.to_string() }
}
