//! One Parquet file: named columns of one length. Every column may have nulls as far as Parquet goes, and none is
//! nested.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use evenkeel_scenario::ScenarioError;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnDescriptor, Type, TypePtr};

use super::columns::{Column, Nullable};
use super::manifest::{Content, Measured};
use super::value::{Kind, Scalar, Values};
use crate::{ReportError, TableError};

/// Rows that are encoded together.
const GROUP_ROWS: usize = 1 << 20;

/// A table.
#[derive(Debug, Default, PartialEq)]
pub struct Table {
    /// Columns, in their order.
    pub columns: Vec<(String, Values)>,
}

/// As Parquet has them.
impl Values {
    fn physical(&self) -> (Physical, Option<LogicalType>) {
        match self.kind() {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Integer => (Physical::INT64, None),
            Kind::Natural => (Physical::INT64, Some(LogicalType::Integer { bit_width: 64, is_signed: false })),
            Kind::Number => (Physical::DOUBLE, None),
            Kind::Truth => (Physical::BOOLEAN, None),
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
    /// Writes the file, and says what it has in it.
    pub(super) fn encode(&self, file: impl Write + Send) -> Result<Content, TableError> {
        let rows = self.columns.first().map_or(0, |(_, values)| values.len());
        let file = Measured::new(file);
        let mut writer = SerializedFileWriter::new(file, self.schema()?, Arc::new(WriterProperties::default()))?;
        for first in (0..rows).step_by(GROUP_ROWS) {
            let rows = first..rows.min(first + GROUP_ROWS);
            let mut group = writer.next_row_group()?;
            for (_, values) in &self.columns {
                let group = &mut group;
                match values {
                    Values::Text(values) => {
                        put::<ByteArrayType, _, _>(group, &values[rows.clone()], |v| v.as_str().into())
                    }
                    Values::Integer(values) => put::<Int64Type, _, _>(group, &values[rows.clone()], |v| *v),
                    Values::Natural(values) => put::<Int64Type, _, _>(group, &values[rows.clone()], |v| *v as i64),
                    Values::Number(values) => put::<DoubleType, _, _>(group, &values[rows.clone()], |v| *v),
                    Values::Truth(values) => put::<BoolType, _, _>(group, &values[rows.clone()], |v| *v),
                }?;
            }
            group.close()?;
        }
        writer.finish()?;
        Ok(writer.inner().content())
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

    /// Opens a file for [`Self::decode`].
    pub(super) fn open(path: &Path) -> Result<File, ReportError> {
        Ok(File::open(path).map_err(|source| ScenarioError::Read { file: path.to_owned(), source })?)
    }

    /// Reads a file that [`Self::encode`] has written.
    pub(super) fn decode(file: impl ChunkReader + 'static) -> Result<Self, TableError> {
        let reader = SerializedFileReader::new(file)?;
        let mut columns: Vec<(String, Values)> = Vec::new();
        for column in reader.metadata().file_metadata().schema_descr().columns() {
            let name = column.name().to_owned();
            if columns.iter().any(|(present, _)| *present == name) {
                return Err(TableError::Twice { column: name });
            }
            let simple = column.max_rep_level() == 0 && column.max_def_level() == 1;
            match Values::empty(column).filter(|_| simple) {
                Some(values) => columns.push((name, values)),
                None => {
                    let logical = column.logical_type_ref().map(|logical| format!(" ({logical:?})"));
                    let found = format!("{}{}", column.physical_type(), logical.unwrap_or_default());
                    return Err(TableError::Foreign { column: name, found });
                }
            }
        }
        for index in 0..reader.num_row_groups() {
            let group = &*reader.get_row_group(index)?;
            for (place, (name, values)) in columns.iter_mut().enumerate() {
                let from = Chunk { group, place, column: name };
                match values {
                    Values::Text(values) => from.take::<ByteArrayType, _>(values, |v| v.as_utf8().map(str::to_owned)),
                    Values::Integer(values) => from.take::<Int64Type, _>(values, |v| Ok(*v)),
                    Values::Natural(values) => from.take::<Int64Type, _>(values, |v| Ok(*v as u64)),
                    Values::Number(values) => from.take::<DoubleType, _>(values, |v| Ok(*v)),
                    Values::Truth(values) => from.take::<BoolType, _>(values, |v| Ok(*v)),
                }?;
            }
        }
        let declared = reader.metadata().file_metadata().num_rows();
        let other = columns.iter().find(|(_, values)| i64::try_from(values.len()) != Ok(declared));
        match other {
            Some((name, values)) => {
                Err(TableError::Rows { column: name.clone(), found: values.len(), declared: declared.to_string() })
            }
            None => Ok(Self { columns }),
        }
    }

    /// Takes a column that has a value in every row.
    pub(super) fn take<T: Scalar>(&mut self, column: &Column<T>) -> Result<Vec<T>, TableError> {
        let name = column.format.name;
        let all = self.named::<T>(name)?.into_iter().enumerate();
        all.map(|(row, value)| value.ok_or_else(|| TableError::Null { column: name.to_owned(), row })).collect()
    }

    /// Takes a column in which a row may have no value.
    pub(super) fn take_nullable<T: Scalar>(&mut self, column: &Nullable<T>) -> Result<Vec<Option<T>>, TableError> {
        self.named(column.format.name)
    }

    fn named<T: Scalar>(&mut self, name: &str) -> Result<Vec<Option<T>>, TableError> {
        let place = self.columns.iter().position(|(column, _)| column == name);
        let place = place.ok_or_else(|| TableError::Missing { column: name.to_owned() })?;
        let (name, values) = self.columns.remove(place);
        T::of_values(values).map_err(|values| TableError::Type {
            column: name,
            found: values.kind().name(),
            wanted: T::KIND.name(),
        })
    }

    /// An error if a column has not been taken.
    pub(super) fn finish(&self) -> Result<(), TableError> {
        match self.columns.first() {
            Some((name, _)) => Err(TableError::Unknown { column: name.clone() }),
            None => Ok(()),
        }
    }
}

/// Appends a column to a row group.
fn put<T: DataType, V, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
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

/// A row group's part of a column.
struct Chunk<'a> {
    group: &'a dyn RowGroupReader,
    place: usize,
    column: &'a str,
}

impl Chunk<'_> {
    /// Appends the values. Damage is an error, not a null.
    fn take<T: DataType, V>(
        &self,
        values: &mut Vec<Option<V>>,
        decode: impl Fn(&T::T) -> ParquetResult<V>,
    ) -> Result<(), TableError> {
        let column = || self.column.to_owned();
        let failed = |source| TableError::Column { column: column(), source };
        let declared = self.group.metadata().num_rows();
        let rows = |found| TableError::Rows { column: column(), found, declared: declared.to_string() };
        let wanted = usize::try_from(declared).map_err(|_| rows(0))?;
        let other = || ParquetError::General("its values are not of the type that the schema has".to_owned());
        let reader = self.group.get_column_reader(self.place).map_err(failed)?;
        let mut reader = T::get_column_reader(reader).ok_or_else(other).map_err(failed)?;
        let (mut levels, mut present) = (Vec::new(), Vec::new());
        let (read, ..) = reader.read_records(wanted, Some(&mut levels), None, &mut present).map_err(failed)?;
        if read != wanted || levels.len() != wanted {
            return Err(rows(read.min(levels.len())));
        }
        let mut present = present.iter();
        let bad = |row, why: String| TableError::Value { column: column(), row, why };
        for level in levels {
            let row = values.len();
            values.push(match level {
                0 => None,
                1 => {
                    let value = present.next().ok_or_else(|| bad(row, "its value is not in the file".to_owned()))?;
                    Some(decode(value).map_err(|error| bad(row, error.to_string()))?)
                }
                _ => return Err(bad(row, format!("definition level {level} in a column that is not nested"))),
            });
        }
        match present.len() {
            0 => Ok(()),
            more => Err(bad(values.len(), format!("{more} values of no row follow"))),
        }
    }
}
