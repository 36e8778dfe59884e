//! Raw rows as a Parquet file: a column is of booleans, of integers, of doubles or of texts, whatever holds all of its values; any may be missing.

use attnlearn::files::write_atomically;
use attnlearn::{Error, Result};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;

/// What a column holds.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Yes,
    /// With a sign, in 64 bits.
    Integer,
    /// Without, where seeds need the last bit.
    Natural,
    Number,
    Text,
}

fn kind(column: &str, rows: &[Map<String, Value>]) -> Kind {
    let values: Vec<&Value> = rows.iter().filter_map(|row| row.get(column)).filter(|value| !value.is_null()).collect();
    let all = |test: fn(&Value) -> bool| values.iter().all(|value| test(value));
    if values.is_empty() {
        // Never measured: a number that is missing.
        Kind::Number
    } else if all(Value::is_boolean) {
        Kind::Yes
    } else if all(Value::is_i64) {
        Kind::Integer
    } else if all(Value::is_u64) {
        Kind::Natural
    } else if all(Value::is_number) {
        Kind::Number
    } else {
        Kind::Text
    }
}

/// Writes these columns of all rows.
pub fn write(path: &Path, columns: &[String], rows: &[Map<String, Value>]) -> Result<()> {
    let bytes = bytes(columns, rows).map_err(|e| Error::io(path, std::io::Error::other(e)))?;
    write_atomically(path, &bytes)
}

fn bytes(columns: &[String], rows: &[Map<String, Value>]) -> std::result::Result<Vec<u8>, ParquetError> {
    let kinds: Vec<Kind> = columns.iter().map(|column| kind(column, rows)).collect();
    let field = |(column, kind): (&String, &Kind)| {
        let physical = match kind {
            Kind::Yes => Physical::BOOLEAN,
            Kind::Integer | Kind::Natural => Physical::INT64,
            Kind::Number => Physical::DOUBLE,
            Kind::Text => Physical::BYTE_ARRAY,
        };
        let logical = match kind {
            Kind::Text => Some(LogicalType::String),
            Kind::Natural => Some(LogicalType::integer(64, false)),
            _ => None,
        };
        Type::primitive_type_builder(column, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
            .map(Arc::new)
    };
    let fields = columns.iter().zip(&kinds).map(field).collect::<std::result::Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let mut group = file.next_row_group()?;
    for (column, kind) in columns.iter().zip(&kinds) {
        let cells = rows.iter().map(|row| row.get(column).filter(|value| !value.is_null()));
        match kind {
            Kind::Yes => put::<BoolType>(&mut group, cells.map(|cell| cell.and_then(Value::as_bool)))?,
            Kind::Integer => put::<Int64Type>(&mut group, cells.map(|cell| cell.and_then(Value::as_i64)))?,
            Kind::Natural => {
                // The same bits, which the schema says to have no sign.
                put::<Int64Type>(&mut group, cells.map(|cell| cell.and_then(Value::as_u64).map(u64::cast_signed)))?
            }
            Kind::Number => put::<DoubleType>(&mut group, cells.map(|cell| cell.and_then(Value::as_f64)))?,
            Kind::Text => {
                put::<ByteArrayType>(&mut group, cells.map(|cell| cell.map(|value| ByteArray::from(text(value).as_str()))))?
            }
        }
    }
    group.close()?;
    file.into_inner()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Writes the next column.
fn put<D: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    cells: impl Iterator<Item = Option<D::T>>,
) -> std::result::Result<(), ParquetError> {
    let cells: Vec<Option<D::T>> = cells.collect();
    // A level says of every row whether there is a value.
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<D::T> = cells.into_iter().flatten().collect();
    let missing = || ParquetError::General("a column more than the schema has".into());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<D>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::json;

    #[test]
    fn rows_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        let rows = [
            json!({"n": 3, "found": true, "model": "RFA", "mixed": 1.5, "m": -1, "seed": u64::MAX, "few": i64::MAX}),
            json!({"n": 0.25, "found": false, "model": "MLP, wide", "mixed": "none", "m": 4, "seed": 1}),
            json!({"n": null, "model": "é"}),
        ];
        let rows: Vec<Map<String, Value>> = rows.iter().map(|row| row.as_object().unwrap().clone()).collect();
        let columns: Vec<String> = ["n", "found", "model", "mixed", "m", "seed", "few"].map(String::from).into();
        write(&path, &columns, &rows).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let read: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        let word = |text: &str| Field::Str(text.into());
        let whole = |m: i64, seed: u64, few: Field| [Field::Long(m), Field::ULong(seed), few];
        assert_eq!(read[0][..4], [Field::Double(3.0), Field::Bool(true), word("RFA"), word("1.5")]);
        assert_eq!(read[0][4..], whole(-1, u64::MAX, Field::Long(i64::MAX)));
        assert_eq!(read[1][..4], [Field::Double(0.25), Field::Bool(false), word("MLP, wide"), word("none")]);
        assert_eq!(read[1][4..], whole(4, 1, Field::Null));
        assert_eq!(read[2][..4], [Field::Null, Field::Null, word("é"), Field::Null]);
    }
}
