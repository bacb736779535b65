//! Messages of OTLP, written as binary protobuf or as JSON (proto3 JSON with the exceptions of
//! OTLP).
//!
//! Numbers and names of the fields are those of `opentelemetry/proto`. An absent field has its
//! default.

use serde_json::{Map, Value as JsonValue};

/// A message: its fields in any order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message(Vec<(u32, &'static str, Field)>);

#[derive(Debug, Clone)]
enum Field {
    Text(String),
    /// An id, in hexadecimal in JSON.
    Id(Vec<u8>),
    Boolean(bool),
    /// `enum` and `uint32`.
    Small(u32),
    /// `int64`.
    Integer(i64),
    Fixed32(u32),
    /// `fixed64`.
    Fixed64(u64),
    Double(f64),
    Message(Message),
    Messages(Vec<Message>),
    /// Packed `fixed64`.
    AllFixed64(Vec<u64>),
    /// Packed `double`.
    Doubles(Vec<f64>),
}

impl Message {
    pub(crate) fn text(self, number: u32, name: &'static str, value: impl Into<String>) -> Self {
        let value = value.into();
        if value.is_empty() {
            self
        } else {
            self.with(number, name, Field::Text(value))
        }
    }

    /// Adds an id; in JSON it is hexadecimal, not base64.
    pub(crate) fn id(self, number: u32, name: &'static str, value: &[u8]) -> Self {
        self.with(number, name, Field::Id(value.to_vec()))
    }

    /// Adds a truth value, also `false`: in a `oneof` it is not the default.
    pub(crate) fn boolean(self, number: u32, name: &'static str, value: bool) -> Self {
        self.with(number, name, Field::Boolean(value))
    }

    pub(crate) fn small(self, number: u32, name: &'static str, value: u32) -> Self {
        self.with(number, name, Field::Small(value))
    }

    pub(crate) fn integer(self, number: u32, name: &'static str, value: i64) -> Self {
        self.with(number, name, Field::Integer(value))
    }

    pub(crate) fn fixed32(self, number: u32, name: &'static str, value: u32) -> Self {
        self.with(number, name, Field::Fixed32(value))
    }

    pub(crate) fn fixed64(self, number: u32, name: &'static str, value: u64) -> Self {
        self.with(number, name, Field::Fixed64(value))
    }

    pub(crate) fn double(self, number: u32, name: &'static str, value: f64) -> Self {
        self.with(number, name, Field::Double(value))
    }

    pub(crate) fn message(self, number: u32, name: &'static str, value: Self) -> Self {
        self.with(number, name, Field::Message(value))
    }

    pub(crate) fn messages(self, number: u32, name: &'static str, value: Vec<Self>) -> Self {
        self.with(number, name, Field::Messages(value))
    }

    pub(crate) fn all_fixed64(self, number: u32, name: &'static str, value: Vec<u64>) -> Self {
        self.with(number, name, Field::AllFixed64(value))
    }

    pub(crate) fn doubles(self, number: u32, name: &'static str, value: Vec<f64>) -> Self {
        self.with(number, name, Field::Doubles(value))
    }

    fn with(mut self, number: u32, name: &'static str, field: Field) -> Self {
        self.0.push((number, name, field));
        self
    }

    /// Returns the message in binary protobuf.
    pub(crate) fn to_protobuf(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, _, field) in &self.0 {
            field.write(*number, &mut out);
        }
        out
    }

    /// Returns the message as JSON.
    pub(crate) fn to_json(&self) -> JsonValue {
        JsonValue::Object(
            self.0
                .iter()
                .map(|(_, name, field)| ((*name).to_owned(), field.to_json()))
                .collect::<Map<_, _>>(),
        )
    }
}

/// Wire types (<https://protobuf.dev/programming-guides/encoding/>).
const VARINT: u32 = 0;
const I64: u32 = 1;
const LENGTH: u32 = 2;
const I32: u32 = 5;

impl Field {
    fn write(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => write_bytes(number, text.as_bytes(), out),
            Self::Id(bytes) => write_bytes(number, bytes, out),
            Self::Boolean(value) => write_varint_field(number, u64::from(*value), out),
            Self::Small(value) => write_varint_field(number, u64::from(*value), out),
            Self::Integer(value) => write_varint_field(number, value.cast_unsigned(), out),
            Self::Fixed32(value) => {
                write_tag(number, I32, out);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Fixed64(value) => {
                write_tag(number, I64, out);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Double(value) => {
                write_tag(number, I64, out);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Message(message) => write_bytes(number, &message.to_protobuf(), out),
            Self::Messages(messages) => {
                for message in messages {
                    write_bytes(number, &message.to_protobuf(), out);
                }
            }
            Self::AllFixed64(values) => {
                write_bytes(
                    number,
                    &values
                        .iter()
                        .flat_map(|value| value.to_le_bytes())
                        .collect::<Vec<u8>>(),
                    out,
                );
            }
            Self::Doubles(values) => {
                write_bytes(
                    number,
                    &values
                        .iter()
                        .flat_map(|value| value.to_le_bytes())
                        .collect::<Vec<u8>>(),
                    out,
                );
            }
        }
    }

    /// 64-bit integers are text in proto3 JSON, enums are numbers in OTLP.
    fn to_json(&self) -> JsonValue {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Id(bytes) => helmdeck_core::hex(bytes).into(),
            Self::Boolean(value) => (*value).into(),
            Self::Small(value) | Self::Fixed32(value) => (*value).into(),
            Self::Integer(value) => value.to_string().into(),
            Self::Fixed64(value) => value.to_string().into(),
            Self::Double(value) => double(*value),
            Self::Message(message) => message.to_json(),
            Self::Messages(messages) => messages.iter().map(Message::to_json).collect(),
            Self::AllFixed64(values) => values
                .iter()
                .map(|value| JsonValue::from(value.to_string()))
                .collect(),
            Self::Doubles(values) => values.iter().map(|value| double(*value)).collect(),
        }
    }
}

/// Numbers that JSON does not have are text in proto3 JSON.
fn double(value: f64) -> JsonValue {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 {
            "Infinity".into()
        } else {
            "-Infinity".into()
        }
    } else {
        value.into()
    }
}

fn write_tag(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    write_varint(u64::from((number << 3) | wire_type), out);
}

fn write_varint_field(number: u32, value: u64, out: &mut Vec<u8>) {
    write_tag(number, VARINT, out);
    write_varint(value, out);
}

fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_tag(number, LENGTH, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding guide.
    #[test]
    fn protobuf_is_written_as_the_guide_says() {
        assert_eq!(
            Message::default().small(1, "a", 150).to_protobuf(),
            [0x08, 0x96, 0x01]
        );
        let text = Message::default().text(2, "b", "testing");
        assert_eq!(
            text.to_protobuf(),
            [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]
        );
        let inner = Message::default().small(1, "a", 150);
        assert_eq!(
            Message::default().message(3, "c", inner).to_protobuf(),
            [0x1a, 0x03, 0x08, 0x96, 0x01]
        );
        let negative = Message::default().integer(1, "a", -2).to_protobuf();
        assert_eq!(
            negative,
            [
                0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01
            ]
        );
        assert_eq!(
            Message::default().fixed32(16, "f", 1).to_protobuf(),
            [0x85, 0x01, 1, 0, 0, 0]
        );
        let packed = Message::default()
            .all_fixed64(6, "p", vec![1])
            .to_protobuf();
        assert_eq!(packed, [0x32, 8, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn json_follows_the_exceptions_of_otlp() {
        let message = Message::default()
            .id(1, "traceId", &[0xab, 0x01])
            .fixed64(2, "time", 7)
            .small(3, "kind", 2)
            .doubles(4, "bounds", vec![0.5, f64::INFINITY])
            .text(5, "absent", "");
        let wanted = serde_json::json!({"traceId": "ab01", "time": "7", "kind": 2, "bounds": [0.5, "Infinity"]});
        assert_eq!(message.to_json(), wanted);
    }
}
