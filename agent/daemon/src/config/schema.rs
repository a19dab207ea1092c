//! The schema of the file, and what it says of each key.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::file::File;

/// The JSON schema of the configuration file.
pub fn schema() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<File>().to_value()
}

/// The schema as it is kept in the repository.
pub fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'a> {
    /// Keys of its own.
    Table(&'a Map<String, Value>),
    /// `true` or `false`.
    Bool,
    /// A number between bounds, whole or not.
    Number { whole: bool, min: f64, max: f64, unit: &'a str, example: Option<&'a Value> },
    /// One of these words.
    Word(&'a [Value]),
    /// Any text.
    Text,
}

impl<'a> Form<'a> {
    /// What the schema of a key says.
    pub(super) fn of(schema: &'a Value) -> Self {
        if let Some(keys) = schema.get("properties").and_then(Value::as_object) {
            return Form::Table(keys);
        }
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            return Form::Word(words);
        }
        // Words that are documented one by one.
        if let Some(words) = schema.get("oneOf").and_then(Value::as_array) {
            return Form::Word(words);
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("boolean") => Form::Bool,
            Some(kind @ ("number" | "integer")) => Form::Number {
                whole: kind == "integer",
                min: bound(schema, "minimum", f64::NEG_INFINITY),
                max: bound(schema, "maximum", f64::INFINITY),
                unit: schema.get("x-unit").and_then(Value::as_str).unwrap_or_default(),
                example: schema.get("default"),
            },
            _ => Form::Text,
        }
    }

    /// What to write instead.
    pub(super) fn wanted(self) -> String {
        match self {
            Form::Table(keys) => {
                format!("write a table with {}", list(keys.keys().map(String::as_str)))
            }
            Form::Bool => "write true or false".to_owned(),
            Form::Text => "write a text in quotes".to_owned(),
            Form::Word(words) => format!("write {}", list(words.iter().filter_map(word))),
            Form::Number { whole, min, max, unit, example } => {
                let what = match (unit, whole) {
                    ("", true) => "a whole number",
                    ("", false) => "a number",
                    (unit, _) => unit,
                };
                let example = example.map(|value| format!(", such as {value}"));
                format!(
                    "give {what}, at least {min} and at most {max}{}",
                    example.unwrap_or_default()
                )
            }
        }
    }
}

fn bound(schema: &Value, name: &str, none: f64) -> f64 {
    schema.get(name).and_then(Value::as_f64).unwrap_or(none)
}

/// A word of an enumeration, documented or not.
pub(super) fn word(entry: &Value) -> Option<&str> {
    entry.as_str().or_else(|| entry.get("const")?.as_str())
}

fn list(words: impl Iterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<String> = words.map(|word| format!("`{}`", word.as_ref())).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "nothing".to_owned(),
    }
}

/// The schema of a key given by its path.
pub(super) fn at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(schema, |schema, key| schema.get("properties")?.get(key))
}

/// Every key that is no table, by its path.
pub(super) fn paths(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    gather(schema, "", &mut found);
    found
}

fn gather(schema: &Value, under: &str, found: &mut Vec<String>) {
    let Form::Table(keys) = Form::of(schema) else {
        found.push(under.to_owned());
        return;
    };
    for (key, inner) in keys {
        gather(inner, &join(under, key), found);
    }
}

/// A path with one more key.
pub(super) fn join(under: &str, key: &str) -> String {
    if under.is_empty() { key.to_owned() } else { format!("{under}.{key}") }
}
