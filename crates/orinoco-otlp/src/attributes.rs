//! Attributes in the form of OTLP.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

/// Maximum length of a value in bytes. Names come from board files, and one request shall stay small.
const TEXT_BYTES_MAX: usize = 256;

/// Creates an attribute with a text, which is cut where it is too long.
pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    let end = value.floor_char_boundary(TEXT_BYTES_MAX);
    attribute(key, Value::StringValue(value[..end].to_owned()))
}

/// Creates an attribute with a whole number.
pub(crate) fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
