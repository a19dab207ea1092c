//! A line's fields as attributes: the names of the line, after `inflight.`.
//!
//! Rooms are text in the line already, and the sequence is here: OpenTelemetry's integers do not
//! hold every u64. What is a list of
//! objects in the line is a list of short texts here; evidence is told in full by span events.

use opentelemetry::logs::AnyValue;
use opentelemetry::{Array, Key, KeyValue, StringValue, Value};
use serde_json::{Map, Value as Json};

use crate::sink::Line;

/// Fields that are elsewhere in a span or a record.
const ELSEWHERE: [&str; 2] = ["time", "type"];
/// The field that is a number in the line and text here.
const TEXT: &str = "seq";

/// One attribute.
pub(super) type Attribute = (Key, Value);

/// Every field of a line that it has.
pub(super) fn of(line: &Line) -> Vec<Attribute> {
    let mut attributes = Vec::new();
    if let Ok(Json::Object(fields)) = serde_json::to_value(line) {
        for (name, value) in &fields {
            if !ELSEWHERE.contains(&name.as_str()) {
                put(&mut attributes, name, value);
            }
        }
    }
    attributes
}

/// As a span has them.
pub(super) fn for_span(attributes: Vec<Attribute>) -> Vec<KeyValue> {
    attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect()
}

/// As a log record has them.
pub(super) fn for_record(attribute: Attribute) -> (Key, AnyValue) {
    let (key, value) = attribute;
    let value = match value {
        Value::Bool(value) => AnyValue::Boolean(value),
        Value::I64(value) => AnyValue::Int(value),
        Value::F64(value) => AnyValue::Double(value),
        Value::Array(Array::String(texts)) => {
            AnyValue::ListAny(Box::new(texts.into_iter().map(AnyValue::String).collect()))
        }
        other => AnyValue::String(other.as_str().into_owned().into()),
    };
    (key, value)
}

fn put(out: &mut Vec<Attribute>, name: &str, value: &Json) {
    let mut push = |name: &str, value: Value| out.push((format!("inflight.{name}").into(), value));
    match value {
        Json::Null => {}
        Json::Bool(value) => push(name, (*value).into()),
        Json::String(text) => push(name, text.clone().into()),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) if name != TEXT => push(name, whole.into()),
            (None, Some(broken)) if !number.is_u64() => push(name, broken.into()),
            _ => push(name, number.to_string().into()),
        },
        Json::Object(fields) => {
            for (field, value) in fields {
                put(out, &format!("{name}.{field}"), value);
            }
        }
        Json::Array(items) if name.starts_with("worker.ranks.") => {
            let parts: Vec<String> = items.iter().map(ToString::to_string).collect();
            push(name, parts.join("/").into());
        }
        Json::Array(items) if name == "coverage" => {
            push("coverage.gaps", texts(items.iter().filter_map(gap)));
        }
        Json::Array(items) => push(name, texts(items.iter().map(short))),
    }
}

fn texts(items: impl Iterator<Item = String>) -> Value {
    Value::Array(Array::String(items.map(StringValue::from).collect()))
}

/// A source that does not see everything, and why.
fn gap(item: &Json) -> Option<String> {
    let field = |name: &str| item.get(name).and_then(Json::as_str);
    let why = field("why")?;
    Some(format!("{} {} ({why})", field("source")?, field("sight")?))
}

/// An item of a list in few words.
fn short(item: &Json) -> String {
    let Json::Object(fields) = item else {
        return match item {
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
    };
    let field = |name: &str| text_of(fields, name);
    match (field("id"), field("cause"), field("kind"), field("value")) {
        (Some(id), ..) => id,
        (_, Some(cause), ..) => {
            let because = fields.get("because").and_then(Json::as_object);
            let because = because.and_then(|because| text_of(because, "id"));
            format!("{cause}: {}", because.unwrap_or_default())
        }
        (_, _, Some(kind), Some(value)) => match fields.get("pid") {
            Some(pid) => format!("{kind} {value} (pid {pid})"),
            None => format!("{kind} {value}"),
        },
        _ => item.to_string(),
    }
}

fn text_of(fields: &Map<String, Json>, name: &str) -> Option<String> {
    fields.get(name).and_then(Json::as_str).map(str::to_owned)
}
